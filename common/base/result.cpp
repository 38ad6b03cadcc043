#include "common/base/result.hpp"

#include <cerrno>
#include <cstring>

namespace sgd {

Error system_error(std::string what) {
  const int code = errno;
  return Error{std::move(what) + ": " + std::strerror(code), code};
}

}  // namespace sgd
