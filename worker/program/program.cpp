#include "worker/program/program.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/exit_codes.hpp"
#include "worker/plugin/list_command.hpp"
#include "worker/plugin/load_plugins.hpp"
#include "worker/plugin/registered_names.hpp"
#include "worker/standalone/config_command.hpp"
#include "worker/torch/device_library.hpp"
#include "worker/torch/fork_server.hpp"
#include "worker/torch/rank_process.hpp"

namespace sgd::worker {
namespace {

constexpr int kControlFd = 3;

int usage(int code) {
  std::fputs(
      "sgd-worker is started by sgd-launch. To train: sgd-launch run job.json\n"
      "  sgd-worker                one rank; SGD_LINK and SGD_TOKEN name its agent\n"
      "  sgd-worker --fork-server  serves the keeper at descriptor 3\n"
      "  sgd-worker --schema [PLUG-IN...]  what the plug-ins register, as JSON\n"
      "  sgd-worker --list KIND [--plugin FILE]... [--json]  what a job file may name, with keys and defaults:\n"
      "    models, datasets, optimizers, schedulers, losses, metrics, operators or functions\n"
      "  sgd-worker --config job.json [--set PATH=VALUE]... [--run-dir DIR] [--resume-from CHECKPOINT]\n"
      "    one rank without a launcher, for a debugger or a first try; reports are JSON lines on stdout\n"
      "  sgd-worker --check-gpu    whether LibTorch's CUDA part is there; touches no GPU\n"
      "  sgd-worker --version\n",
      code == 0 ? stdout : stderr);
  return code;
}

/// {"model": {NAME: {KEY: what it may be}}, "operator": ...}
int print_schema(const std::vector<std::string>& plugins) {
  if (Status loaded = load_plugins(plugins); !loaded) {
    std::fprintf(stderr, "sgd-worker: %s\n", loaded.error().message.c_str());
    return worker_exit::kConfiguration;
  }
  std::puts(registered_properties().dump().c_str());
  return worker_exit::kDone;
}

int check_gpu() {
  try {
    open_device_library();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sgd-worker: %s\n", error.what());
    return worker_exit::kConfiguration;
  }
  return worker_exit::kDone;
}

int run(int argc, char** argv) {
  if (const std::vector<std::string>& faults = registration_faults(); !faults.empty()) {
    std::fprintf(stderr, "sgd-worker: this program registers wrongly: %s\n",
                 fmt::format("{}", fmt::join(faults, "; ")).c_str());
    return worker_exit::kConfiguration;
  }
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "--schema") return print_schema({argv + 2, argv + argc});
  if (mode == "--list") return run_list_command({argv + 2, argv + argc});
  if (mode == "--config") {
    prepare_process();
    return run_config_command({argv + 2, argv + argc}, [] { return run_rank({}); });
  }
  if (argc > 2) return usage(worker_exit::kConfiguration);
  if (mode == "--version") {
    std::puts("sgd-worker " SGD_VERSION);
    return worker_exit::kDone;
  }
  if (mode == "--check-gpu") return check_gpu();
  if (mode == "--help" || mode == "-h") return usage(worker_exit::kDone);
  if (!mode.empty() && mode != "--fork-server") {
    std::fprintf(stderr, "sgd-worker: unknown argument \"%s\"\n", argv[1]);
    return usage(worker_exit::kConfiguration);
  }
  prepare_process();
  return mode.empty() ? run_rank({}) : run_fork_server(kControlFd);
}

}  // namespace

int run_program(int argc, char** argv) {
  const int code = run(argc, argv);
  std::fflush(nullptr);
  _exit(code);  // LibTorch's destructors cost more than the whole end of a run and save nothing.
}

}  // namespace sgd::worker
