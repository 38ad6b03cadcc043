// Runs a fuzz target without libFuzzer: first the kept inputs, then mutations of them, drawn from a seed, for
// some seconds or a number of executions. No coverage guides it; it is the short form for continuous
// integration, and it replays what any fuzzer found:
//   fuzz_NAME [--seconds S] [--executions N] [--seed N] [--artifacts DIR] [--dictionary FILE]
//   [FILE|DIRECTORY]...
// A target that aborts, or takes over kTimeLimitS for one input, leaves the input in a file and the command
// to replay it.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "test/fuzz/mutator.hpp"
#include "test/fuzz/target.hpp"

namespace {

namespace fs = std::filesystem;

constexpr unsigned kTimeLimitS = 30;
constexpr std::uint64_t kExecutionsPerLook = 64;  ///< Between two looks at the clock.

struct Settings {
  double seconds = 0;
  std::uint64_t executions = 0;
  std::uint64_t seed = 1;
  fs::path artifacts = ".";
  fs::path dictionary;
  std::vector<fs::path> inputs;
};

// Of the execution that goes on, for the signal handler, which may only call what is async-signal-safe.
const std::string* current = nullptr;
char artifact_path[4096];
char replay_text[8192];

void say(const char* text) {
  (void)!::write(STDERR_FILENO, text, std::char_traits<char>::length(text));
}

void on_fatal(int signal) {
  if (signal == SIGALRM) say("fuzz: the target takes too long for this input\n");
  const int fd = ::open(artifact_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && current != nullptr) (void)!::write(fd, current->data(), current->size());
  say(replay_text);
  ::signal(SIGABRT, SIG_DFL);
  ::abort();
}

void catch_signals(const std::string& program, const Settings& settings) {
  const fs::path path = settings.artifacts / fmt::format("crash-{}", fs::path(program).filename().string());
  std::snprintf(artifact_path, sizeof artifact_path, "%s", path.c_str());
  std::snprintf(replay_text, sizeof replay_text, "fuzz: the input is in %s\nfuzz: replay it with: %s %s\n",
                path.c_str(), program.c_str(), path.c_str());
  struct sigaction action {};
  action.sa_handler = on_fatal;
  action.sa_flags = SA_ONSTACK;
  ::sigaction(SIGABRT, &action, nullptr);
  ::sigaction(SIGALRM, &action, nullptr);
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fmt::print(stderr, "fuzz: cannot read {}\n", path.string());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// In the order of their names, so that a seed means the same everywhere.
std::vector<std::string> read_inputs(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path))
      files.push_back(path);
    else
      for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const fs::path& file : files) inputs.push_back(contents(file));
  return inputs;
}

Settings settings_of(int argc, char** argv) {
  Settings settings;
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (!word.starts_with("--")) {
      settings.inputs.emplace_back(word);
      continue;
    }
    const std::string value = ++index < argc ? argv[index] : "";
    if (word == "--seconds")
      settings.seconds = std::strtod(value.c_str(), nullptr);
    else if (word == "--executions")
      settings.executions = std::strtoull(value.c_str(), nullptr, 10);
    else if (word == "--seed")
      settings.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (word == "--artifacts")
      settings.artifacts = value;
    else if (word == "--dictionary")
      settings.dictionary = value;
    else {
      fmt::print(stderr, "fuzz: unknown option {}; see the head of test/fuzz/driver.cpp\n", word);
      std::exit(2);
    }
  }
  return settings;
}

void execute(const std::string& input) {
  current = &input;
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = settings_of(argc, argv);
  const std::vector<std::string> kept = read_inputs(settings.inputs);
  const std::string tokens = settings.dictionary.empty() ? "" : contents(settings.dictionary);
  catch_signals(argv[0], settings);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  ::alarm(kTimeLimitS);
  for (const std::string& input : kept) execute(input);
  sgd::fuzz::Mutator mutator(kept, tokens, settings.seed);
  std::uint64_t mutated = 0;
  // Without a limit only the kept inputs are run.
  for (bool goes_on = settings.seconds > 0 || settings.executions > 0; goes_on;) {
    const std::string input = mutator.next();
    execute(input);
    ++mutated;
    if (settings.executions > 0 && mutated >= settings.executions) break;
    if (mutated % kExecutionsPerLook == 0) {
      ::alarm(kTimeLimitS);
      goes_on = settings.seconds <= 0 || elapsed_s() < settings.seconds;
    }
  }
  ::alarm(0);
  current = nullptr;
  const double seconds = elapsed_s();
  fmt::print("{} kept inputs, {} mutations of seed {}, {:.1f} s\n", kept.size(), mutated, settings.seed, seconds);
  fmt::print("All tests passed ({} executions in 1 test case)\n", kept.size() + mutated);
  return 0;
}
