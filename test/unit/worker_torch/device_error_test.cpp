// What an error of CUDA's is taken for: a broken device, no memory, a set-up that does not fit, or the program's own.
#include "worker/torch/device_error.hpp"

#include <catch2/catch.hpp>

#include <c10/util/Exception.h>

#include "common/exit_codes.hpp"
#include "worker/torch/error_report.hpp"

namespace sgd::worker {

TEST_CASE("device errors: only what proves that a device is broken says so") {
  struct Row {
    int code;
    int exit_code;
    const char* words;  // Empty: the program's own, with CUDA's words alone.
  };
  for (const Row& row : {
           Row{1, worker_exit::kUserError, ""},
           Row{2, worker_exit::kEnvironment, "cpu has no memory left: CUDA error: of the test"},
           Row{9, worker_exit::kUserError, ""},
           Row{35, worker_exit::kConfiguration, "cpu cannot be used with this driver and this LibTorch: CUDA error"},
           Row{46, worker_exit::kEnvironment, "cpu has failed: CUDA error: of the test"},
           Row{98, worker_exit::kConfiguration, "cpu cannot be used"},
           Row{209, worker_exit::kConfiguration, "cpu cannot be used"},
           Row{214, worker_exit::kEnvironment, "cpu has failed"},
           Row{220, worker_exit::kEnvironment, "cpu has failed"},
           Row{226, worker_exit::kEnvironment, "an error came from cpu: CUDA error: of the test"},
           Row{304, worker_exit::kEnvironment, "an error came from cpu"},
           Row{700, worker_exit::kEnvironment, "an error came from a kernel on cpu: CUDA error: of the test"},
           Row{710, worker_exit::kUserError, ""},
           Row{714, worker_exit::kEnvironment, "cpu has failed"},
           Row{715, worker_exit::kEnvironment, "an error came from a kernel on cpu"},
           Row{716, worker_exit::kEnvironment, "an error came from a kernel on cpu"},
           Row{717, worker_exit::kEnvironment, "an error came from a kernel on cpu"},
           Row{718, worker_exit::kEnvironment, "an error came from a kernel on cpu"},
           Row{719, worker_exit::kEnvironment, "an error came from a kernel on cpu"},
           Row{999, worker_exit::kEnvironment, "cpu has failed"},
       }) {
    CAPTURE(row.code);
    const c10::AcceleratorError error(c10::SourceLocation{"f", "f.cpp", 1}, row.code,
                                      "CUDA error: of the test\nCUDA kernel errors may come later.");
    const auto told = device_error_of(error, Device());
    CHECK((told ? told->text : "").starts_with(row.words));
    CHECK(told.has_value() == (*row.words != 0));
    const Failure failure = describe(std::make_exception_ptr(error));
    CHECK(failure.exit_code == row.exit_code);
    if (told) CHECK(failure.message == told->text);
  }
  CHECK_FALSE(device_error_of(std::runtime_error("CUDA error: of somebody"), Device()));
}

}  // namespace sgd::worker
