#include "worker/collective/c_api/reduction.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "worker/collective/c_api/sgd_collective.h"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

// A block's running result stays in the first-level cache while the sources pass by.
constexpr std::size_t kBlock = 1024;

struct Bool {
  std::uint8_t value;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

// Without a branch, so that loops over them become vector code.
float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
BFloat16 narrow_to(float value, BFloat16) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // To nearest, ties to even.
  const bool is_nan = (bits & 0x7fff'ffff) > 0x7f80'0000;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0 : rounded)};
}

float widen(Float16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t exponent = magnitude >= 0x7c00 ? 0x7000'0000u : 0x3800'0000u;  // Infinity and NaN, or a number.
  // One below the normal halves gets the leading bit of the smallest of them, which is subtracted again. No operand is
  // below the normal floats: the CPU may take such for zeros (torch.set_flush_denormal).
  const std::uint32_t is_small = magnitude < 0x0400 ? 0xffff'ffffu : 0u;
  const auto with_lead = std::bit_cast<float>((magnitude << 13) + exponent + (is_small & 0x0080'0000u));
  const float wide = with_lead - std::bit_cast<float>(is_small & 0x3880'0000u);
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(wide) | sign);
}
Float16 narrow_to(float value, Float16) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fff'ffff;
  std::uint32_t half = 0;
  if (magnitude > 0x7f80'0000) {
    half = 0x7e00;  // NaN.
  } else if (magnitude >= 0x477f'f000) {
    half = 0x7c00;  // Rounds to infinity.
  } else if (magnitude < 0x3880'0000) {
    // Below the smallest normal number an addition rounds at the last bit there is.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f00'0000;
  } else {
    half = (magnitude - 0x3800'0000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return {static_cast<std::uint16_t>(half | sign)};
}

template <typename T>
T widen(T value) {
  return value;
}
std::uint8_t widen(Bool value) {
  return value.value != 0 ? 1 : 0;
}
template <typename T>
T narrow_to(T value, T) {
  return value;
}
Bool narrow_to(std::uint8_t value, Bool) {
  return {value};
}

template <typename T>
using Wide = decltype(widen(T{}));

template <typename W>
W combine(std::uint32_t reduction, W a, W b) {
  // Sums and products of integers go round, as everybody's do; in C++ only those of unsigned ones may.
  if constexpr (std::is_integral_v<W>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    switch (reduction) {
      case SGDC_SUM:
        return static_cast<W>(x + y);
      case SGDC_PRODUCT:
        return static_cast<W>(x * y);
      case SGDC_MIN:
        return std::min(a, b);
      case SGDC_MAX:
        return std::max(a, b);
      case SGDC_BIT_AND:
        return static_cast<W>(x & y);
      case SGDC_BIT_OR:
        return static_cast<W>(x | y);
      default:
        return static_cast<W>(x ^ y);
    }
  } else {
    switch (reduction) {
      case SGDC_PRODUCT:
        return a * b;
      case SGDC_MIN:
        return a != a || a < b ? a : b;
      case SGDC_MAX:
        return a != a || a > b ? a : b;
      default:
        return a + b;
    }
  }
}

template <typename T, std::uint32_t kReduction>
void reduce_as(std::span<const std::byte* const> sources, std::byte* to, std::size_t count) {
  using W = Wide<T>;
  W block[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    const T* const first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (std::size_t i = 0; i < length; ++i) block[i] = widen(first[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const T* const next = reinterpret_cast<const T*>(sources[s]) + begin;
      for (std::size_t i = 0; i < length; ++i) block[i] = combine<W>(kReduction, block[i], widen(next[i]));
    }
    if constexpr (kReduction == SGDC_AVERAGE && std::is_floating_point_v<W>) {
      const W ranks = static_cast<W>(sources.size());
      for (std::size_t i = 0; i < length; ++i) block[i] /= ranks;
    }
    if constexpr (std::is_same_v<T, Bool>)
      for (std::size_t i = 0; i < length; ++i) block[i] = block[i] != 0 ? 1 : 0;
    T* const out = reinterpret_cast<T*>(to) + begin;
    for (std::size_t i = 0; i < length; ++i) out[i] = narrow_to(block[i], T{});
  }
}

// What gradients are. `out` may be `a` or `b`: each element is read before it is written.
SGD_CLONES void add_floats(const float* a, const float* b, float* out, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void sum_floats(std::span<const std::byte* const> sources, std::byte* to, std::size_t count) {
  float block[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    const auto from = [&](std::size_t s) { return reinterpret_cast<const float*>(sources[s]) + begin; };
    const float* sum = from(0);
    // The last addition alone writes to `to`, which may be one of the sources.
    for (std::size_t s = 1; s + 1 < sources.size(); ++s) {
      add_floats(sum, from(s), block, length);
      sum = block;
    }
    float* const out = reinterpret_cast<float*>(to) + begin;
    if (sources.size() == 1)
      std::copy_n(sum, length, out);
    else
      add_floats(sum, from(sources.size() - 1), out, length);
  }
}

// The sum of two flags is their "or", a product their "and".
constexpr std::uint32_t of_bool(std::uint32_t reduction) {
  if (reduction == SGDC_SUM || reduction == SGDC_MAX) return SGDC_BIT_OR;
  if (reduction == SGDC_PRODUCT || reduction == SGDC_MIN) return SGDC_BIT_AND;
  return reduction;
}

template <typename T>
void reduce_type(std::uint32_t reduction, std::span<const std::byte* const> sources, std::byte* to, std::size_t count) {
  switch (std::is_same_v<T, Bool> ? of_bool(reduction) : reduction) {
    case SGDC_SUM:
      return reduce_as<T, SGDC_SUM>(sources, to, count);
    case SGDC_AVERAGE:
      return reduce_as<T, SGDC_AVERAGE>(sources, to, count);
    case SGDC_PRODUCT:
      return reduce_as<T, SGDC_PRODUCT>(sources, to, count);
    case SGDC_MIN:
      return reduce_as<T, SGDC_MIN>(sources, to, count);
    case SGDC_MAX:
      return reduce_as<T, SGDC_MAX>(sources, to, count);
    case SGDC_BIT_AND:
      return reduce_as<T, SGDC_BIT_AND>(sources, to, count);
    case SGDC_BIT_OR:
      return reduce_as<T, SGDC_BIT_OR>(sources, to, count);
    default:
      return reduce_as<T, SGDC_BIT_XOR>(sources, to, count);
  }
}

bool is_floating(std::uint32_t type) {
  return type >= SGDC_FLOAT16 && type <= SGDC_FLOAT64;
}

}  // namespace

std::size_t element_bytes(std::uint32_t type) {
  constexpr std::size_t kBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

bool can_reduce(std::uint32_t type, std::uint32_t reduction) {
  if (element_bytes(type) == 0) return false;
  if (reduction == SGDC_AVERAGE) return is_floating(type);
  return reduction <= SGDC_MAX || (reduction <= SGDC_BIT_XOR && !is_floating(type));
}

void reduce_elements(std::uint32_t type, std::uint32_t reduction, std::span<const std::byte* const> sources,
                     std::byte* to, std::size_t count) {
  switch (type) {
    case SGDC_UINT8:
      return reduce_type<std::uint8_t>(reduction, sources, to, count);
    case SGDC_INT8:
      return reduce_type<std::int8_t>(reduction, sources, to, count);
    case SGDC_INT16:
      return reduce_type<std::int16_t>(reduction, sources, to, count);
    case SGDC_INT32:
      return reduce_type<std::int32_t>(reduction, sources, to, count);
    case SGDC_INT64:
      return reduce_type<std::int64_t>(reduction, sources, to, count);
    case SGDC_FLOAT16:
      return reduce_type<Float16>(reduction, sources, to, count);
    case SGDC_BFLOAT16:
      return reduce_type<BFloat16>(reduction, sources, to, count);
    case SGDC_FLOAT32:
      if (reduction == SGDC_SUM) return sum_floats(sources, to, count);
      return reduce_type<float>(reduction, sources, to, count);
    case SGDC_FLOAT64:
      return reduce_type<double>(reduction, sources, to, count);
    default:
      return reduce_type<Bool>(reduction, sources, to, count);
  }
}

}  // namespace sgd::worker
