// sgd-launch: picks the verb. No decision about runs is made here.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/exit_codes.hpp"
#include "launcher/callbacks/exec_guard.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/last_words.hpp"
#include "launcher/cli/output_sink.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/verb_table.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/keeper/keeper_main.hpp"
#include "launcher/process/init_process.hpp"

namespace {

/// Descriptors 0 to 2 are there, whatever the caller has closed: the first file or socket that is opened would get
/// the number, and lines for people would be written into it.
void open_standard_streams() {
  int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= 2) {
    (void)::fcntl(fd, F_SETFD, 0);  // Programs that are started keep it; ignoring a failure.
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
  if (fd >= 0) ::close(fd);
}

/// What the caller had blocked or ignored is not meant for us: a SIGTERM that is blocked would never be heard, and of
/// children that are ignored (SIGCHLD) the kernel keeps no exit status.
void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);  // Ignoring: it cannot fail with these arguments.
  (void)std::signal(SIGCHLD, SIG_DFL);
}

/// What a verb has printed may still be held back: a disk that is full behind stdout is no success. Whoever has stopped
/// reading has had enough. The loss of a run's output has been told when it came.
int with_output(int exit_code) {
  if (std::fflush(stdout) != 0 && errno != EPIPE) throw std::system_error(errno, std::generic_category());
  const bool is_success = exit_code == sgd::exit_code::kSucceeded;
  return is_success && sgd::cli::has_lost_output() ? sgd::exit_code::kFailed : exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sgd::cli;
  open_standard_streams();
  reset_signals();
  sgd::process::work_below_init();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // A limit on files (ulimit -f) is said by the write that it refuses.
  std::vector<std::string> words = verb_first({argv + 1, argv + argc});
  const std::string verb = words.empty() ? "" : words.front();
  try {
    if (verb == "keeper" && words.size() <= 2)  // Started by ourselves only.
      return sgd::keeper::keeper_main(words.size() == 1 ? sgd::Duration{}
                                                        : sgd::parse_duration(words[1]).value_or(sgd::Duration{}));
    if (verb == "spare-keeper" && words.size() == 1) return sgd::keeper::spare_keeper_main();  // The same.
    if (verb == "warm-server" && words.size() == 2) return warm_server_main(words[1]);         // The same.
    if (verb == "callback" && (words.size() == 4 || words.size() == 7))                        // The same.
      return sgd::callbacks::exec_guard_main({words.begin() + 1, words.end()});
    (void)::unsetenv("SGD_AGENT_WAIT");  // Said of another agent, where we are ourselves part of a run.
    if (words.empty()) {
      fmt::print(stderr, "{}", wrapped(run_help(), help_width()));
      return sgd::exit_code::kUsage;
    }
    if (verb == "help" || verb == "--help" || verb == "-h")
      return with_output(help_verb({words.begin() + 1, words.end()}));
    if (verb == "version" || verb == "--version") {
      fmt::print("sgd-launch {}\n", SGD_VERSION);
      return with_output(sgd::exit_code::kSucceeded);
    }
    const auto known = verbs().find(verb);
    if (known == verbs().end()) return with_output(verbs().at("run").run(words));
    words.erase(words.begin());
    return with_output(known->second.run(words));
  } catch (const std::exception&) {
    const char* details = std::getenv("SGD_DETAILS");
    fmt::print(stderr, "sgd-launch: error: {}\n",
               last_words(verb, std::current_exception(), details != nullptr && *details == '1'));
    return sgd::exit_code::kFailed;
  }
}
