#pragma once
// The first frame of every connection between our daemons, from either side: which versions of the protocol it speaks.
// Both take the newest that both know, so that a cluster can be updated node by node.

#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::hello {

inline constexpr int kProtocolMin = 1;
inline constexpr int kProtocolMax = 1;

struct Hello {
  int protocol_min = kProtocolMin;
  int protocol_max = kProtocolMax;
};

[[nodiscard]] std::string encode(const Hello& hello);
[[nodiscard]] Result<Hello> decode(std::string_view json);

/// The newest version that both speak. Error: there is none, and which side is the older one.
[[nodiscard]] Result<int> agree(const Hello& own, const Hello& other);

}  // namespace sgd::hello
