// Which exception ends a rank with which exit code.
#include "worker/torch/error_report.hpp"

#include <catch2/catch.hpp>

#include <exception>
#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>

#include "common/exit_codes.hpp"
#include "worker/collective/factory.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {

TEST_CASE("errors: each type stands for one exit code") {
  const auto code_of = [](const auto& error) { return describe(std::make_exception_ptr(error)).exit_code; };
  CHECK(code_of(CollectiveError("a peer is gone")) == worker_exit::kPeerLost);
  CHECK(code_of(PeerFault("rank 1 has a loss that is not finite")) == worker_exit::kPeerLost);
  CHECK(code_of(CollectiveMismatch("rank 1 left")) == worker_exit::kUserError);
  CHECK(code_of(CollectiveSetupError("no module")) == worker_exit::kConfiguration);
  CHECK(code_of(ConfigurationError("no model")) == worker_exit::kConfiguration);
  CHECK(code_of(EnvironmentError("no disk")) == worker_exit::kEnvironment);
  CHECK(code_of(std::bad_alloc()) == worker_exit::kEnvironment);
  CHECK(code_of(std::runtime_error("the user's")) == worker_exit::kUserError);
  const auto code_of_words = [](const char* words) {
    return describe(std::make_exception_ptr(c10::Error(c10::SourceLocation{"f", "f.cpp", 1}, words))).exit_code;
  };
  CHECK(code_of_words("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`") ==
        worker_exit::kEnvironment);
  CHECK(code_of_words("[enforce fail] . DefaultCPUAllocator: not enough memory") == worker_exit::kEnvironment);
  CHECK(code_of_words("mat1 and mat2 shapes cannot be multiplied") == worker_exit::kUserError);
  const Failure failure = describe(std::make_exception_ptr(CollectiveMismatch("rank 1 left")));
  CHECK(failure.type == "sgd::worker::CollectiveMismatch");
  CHECK(failure.message == "rank 1 left");
}

}  // namespace sgd::worker
