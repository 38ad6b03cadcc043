#pragma once
// Unix time, in one place: certificates and tokens say in it how long they hold.

#include <chrono>
#include <cstdint>

namespace sgd::net {

[[nodiscard]] inline std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace sgd::net
