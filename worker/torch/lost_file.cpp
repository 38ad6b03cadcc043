#include "worker/torch/lost_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "common/exit_codes.hpp"
#include "worker/core/file_mappings.hpp"

namespace sgd::worker {
namespace {

/// Safe in a handler. What standard error does not take is lost.
void say_safely(const char* text) {
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
}

[[noreturn]] void end_without(const FileMapping& file) {
  struct stat now {};
  const bool is_cut = ::stat(file.path.c_str(), &now) == 0 && static_cast<std::size_t>(now.st_size) < file.size;
  say_safely("sgd-worker: data file ");
  say_safely(file.path.c_str());
  say_safely(is_cut ? " has been cut while it was in use: write changed data to another file\n"
                    : " cannot be read any more: its disk has failed, or it has been replaced\n");
  ::_exit(is_cut ? worker_exit::kUserError : worker_exit::kEnvironment);
}

extern "C" void on_bus_error(int number, siginfo_t* info, void*) {
  // One that somebody has sent (kill) has no address.
  const FileMapping* file = info->si_code > 0 ? mapping_at(info->si_addr) : nullptr;
  if (file != nullptr) end_without(*file);
  (void)std::signal(number, SIG_DFL);
  (void)std::raise(number);
}

}  // namespace

void explain_lost_files() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  (void)::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace sgd::worker
