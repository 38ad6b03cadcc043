#pragma once
// A worker of one's own: a program in place of sgd-worker, which has what it registers built in, beside what sgd-worker
// has.
//
//   #include <sgd/main.hpp>
//   SGD_REGISTER_OPERATOR("gan", Gan, "{}");
//   int main(int argc, char** argv) { return sgd::worker_main(argc, argv); }
//
//   find_package(SgdLaunch REQUIRED)
//   sgd_add_worker(my-worker my_worker.cpp)
//
// `sgd-launch --worker ./my-worker job.json`, or "worker" in the job file, trains with it. `./my-worker --config
// job.json` is one rank without a launcher, and `./my-worker --list operators` what there is.

#include <cstdlib>

#include "sgd/sgd.hpp"

namespace sgd {
namespace worker {
[[noreturn]] int run_program(int argc, char** argv);
}

/// Never returns: it ends the process with its exit code.
[[noreturn]] inline int worker_main(int argc, char** argv) {
#ifdef SGD_MODULE_FOLDER
  // Between hosts gradients go through a module that lies beside sgd-worker, wherever this program lies.
  (void)::setenv("SGD_MODULE_DIR", SGD_MODULE_FOLDER, 0);
#endif
  worker::run_program(argc, argv);
}

}  // namespace sgd
