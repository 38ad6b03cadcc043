#include "test/unit/worker/collective_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "test/unit/worker/rank_processes.hpp"

namespace sgd::worker::testing {
namespace {

void check_all_reduce(Collective& c) {
  const std::span<float> gradients = c.gradients();
  expect(reinterpret_cast<std::uintptr_t>(gradients.data()) % 64 == 0, "gradients are not 64-byte aligned");
  const int size = c.world_size();
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>((c.rank() + 1) * static_cast<int>(i % 97 + 1) + round);
    }
    const std::uint32_t own_bit = 1u << (4 * round + c.rank());
    const std::uint32_t word = c.all_reduce(round == 2 ? 0 : own_bit);
    const std::uint32_t all_bits = ((1u << size) - 1) << (4 * round);
    expect(word == (round == 2 ? 0 : all_bits), "control word of round " + std::to_string(round));
    const int sum_of_ranks = size * (size + 1) / 2;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto wanted = static_cast<float>(sum_of_ranks * static_cast<int>(i % 97 + 1) + size * round);
      if (gradients[i] == wanted) continue;
      expect(false,
             "sum at " + std::to_string(i) + " is " + std::to_string(gradients[i]) + ", not " + std::to_string(wanted));
    }
  }
}

// Magnitudes far apart, so that each order of adding rounds differently.
void fill(std::span<float> values, int rank, int round) {
  std::uint32_t state = 12345u + static_cast<std::uint32_t>(rank * 1000 + round);
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * (state % 3 == 0 ? 1e-9f : 1e-3f);
  }
}

std::string bits_of(std::span<const float> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void check_parts(Collective& c) {
  const std::span<float> gradients = c.gradients();
  const std::size_t count = gradients.size();
  fill(gradients, c.rank(), 7);
  const std::string own = bits_of(gradients);
  expect(c.all_reduce(0) == 0, "control word of the whole");
  const std::string whole = bits_of(gradients);
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, count / 3 + 1, count / 2}) {
    const std::size_t begin = std::min(first, count);
    const std::size_t end = std::max(begin, count - count / 5);
    fill(gradients, c.rank(), 7);
    const std::uint32_t bit = 1u << (8 + c.rank());
    expect(c.all_reduce(bit, begin, end - begin) == ((1u << c.world_size()) - 1) << 8, "control word of a part");
    const std::string part = bits_of(gradients);
    const std::size_t b = begin * sizeof(float);
    const std::size_t e = end * sizeof(float);
    expect(part.substr(b, e - b) == whole.substr(b, e - b), "a part has other bits than the whole");
    expect(part.substr(0, b) == own.substr(0, b) && part.substr(e) == own.substr(e), "what is no part was changed");
    expect(c.all_reduce(0, end, count - end) == 0 && c.all_reduce(0, 0, begin) == 0, "control words of the rest");
    expect(bits_of(gradients) == whole, "all parts together have other bits than the whole");
  }
}

// Every rank learns of one value that is not finite, wherever it is and whoever has it; also of a sum that overflows.
void check_infinite(Collective& c) {
  const std::span<float> gradients = c.gradients();
  const std::size_t count = gradients.size();
  if (count == 0) return;
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (int who = 0; who < c.world_size(); ++who) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (const std::size_t where : {std::size_t{0}, count / 2, count - 1}) {
        fill(gradients, c.rank(), who);
        if (c.rank() == who) gradients[where] = bad;
        expect(c.all_reduce(control::kStop) == (control::kStop | control::kInfinite), "a value that is not finite");
        expect(!std::isfinite(gradients[where]), "the sum of a value that is not finite");
        expect((c.all_reduce(0, 0, where) | c.all_reduce(0, where + 1, count - where - 1)) == 0, "a value of no part");
      }
    }
  }
  std::fill(gradients.begin(), gradients.end(), kLargest / static_cast<float>(c.world_size()) * 0.9f);
  expect(c.all_reduce(0) == 0, "large sums");
  std::fill(gradients.begin(), gradients.end(), kLargest);
  expect(c.all_reduce(0) == (c.world_size() > 1 ? control::kInfinite : 0), "a sum that overflows");
}

void check_agree(Collective& c) {
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t own = c.rank() == round % c.world_size() ? 1u << (round % 32) : 0;
    expect(c.agree(own) == 1u << (round % 32), "agree in round " + std::to_string(round));
  }
  expect(c.agree(0) == 0, "agree on nothing");
}

void check_broadcast(Collective& c) {
  for (const std::size_t bytes : {0ul, 1ul, 5ul, 128ul << 10, (128ul << 10) + 1, 1000ul << 10}) {
    for (int root = 0; root < c.world_size(); ++root) {
      std::vector<std::byte> data(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = c.rank() == root ? static_cast<std::byte>(i * 7 + static_cast<std::size_t>(root)) : std::byte{0};
      }
      c.broadcast(data, root);
      for (std::size_t i = 0; i < bytes; ++i) {
        if (data[i] == static_cast<std::byte>(i * 7 + static_cast<std::size_t>(root))) continue;
        expect(false, "byte " + std::to_string(i) + " of " + std::to_string(bytes) + " from " + std::to_string(root));
      }
    }
  }
}

std::string message_of(int rank, std::size_t unit) {
  return std::string(unit * static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
}

void check_all_gather(Collective& c) {
  for (const std::size_t unit : {0ul, 1ul, 256ul << 10, 300'000ul}) {  // Rank 0's message is always empty.
    const std::vector<std::string> all = c.all_gather(message_of(c.rank(), unit));
    expect(all.size() == static_cast<std::size_t>(c.world_size()), "count of gathered messages");
    for (int r = 0; r < c.world_size(); ++r) {
      expect(all[static_cast<std::size_t>(r)] == message_of(r, unit), "gathered message of " + std::to_string(r));
    }
  }
}

}  // namespace

void check_collective(Collective& c) {
  check_all_reduce(c);
  check_agree(c);
  check_broadcast(c);
  check_all_gather(c);
  c.barrier();
  check_all_reduce(c);
  check_parts(c);
  check_infinite(c);
}

void check_bit_equal(Collective& c) {
  for (int round = 0; round < 3; ++round) {
    fill(c.gradients(), c.rank(), round);
    expect(c.all_reduce(0) == 0, "control word");
    const std::string own = bits_of(c.gradients());
    for (const std::string& other : c.all_gather(own)) expect(other == own, "the ranks hold different bits");
  }
}

std::string mismatch_of(Collective& c, const std::function<void(Collective&)>& call) {
  for (int i = 0; i < 3; ++i) (void)c.all_reduce(0);  // Ignoring: only so that the group has been at work.
  try {
    call(c);
  } catch (const CollectiveMismatch& mismatch) {
    return mismatch.what();
  }
  return "nothing was thrown";
}

}  // namespace sgd::worker::testing
