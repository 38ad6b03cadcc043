#include "worker/collective/gloo_collective.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/collective/gloo_loader.hpp"
#include "worker/collective/limits.hpp"
#include "worker/collective/shm_region.hpp"

namespace sgd::worker {
namespace {

std::int64_t timeout_ms(Duration duration) {
  return std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

GlooCollective::GlooCollective(int rank, int size, std::size_t gradient_count, const std::string& bind_address,
                               Duration stall_timeout)
    : api_(load_gloo()),
      rank_(rank),
      size_(size),
      gradient_count_(gradient_count),
      gradients_(gradient_count + kControlFloats) {
  SgdGlooError error{};
  group_ = api_.create(rank, size, bind_address.c_str(), timeout_ms(stall_timeout), &error);
  if (group_ == nullptr) {
    throw CollectiveSetupError(fmt::format("Gloo cannot use the address {}: {}", bind_address, error.text));
  }
}

GlooCollective::~GlooCollective() {
  api_.destroy(group_);
}

std::string GlooCollective::address() const {
  return api_.address(group_);
}

void GlooCollective::connect(const std::vector<std::string>& addresses) {
  SGD_ASSERT(addresses.size() == static_cast<std::size_t>(size_));
  std::vector<const char*> texts;
  for (const std::string& text : addresses) texts.push_back(text.c_str());
  SgdGlooError error{};
  check(api_.connect(group_, texts.data(), &error), error, "connect");
}

std::uint32_t GlooCollective::sum_with_control(std::span<float> values, std::uint32_t control_word) {
  SGD_ASSERT(values.size() >= kControlFloats);
  const std::span<float> bits = values.last(kControlFloats);
  for (std::size_t bit = 0; bit < kControlFloats; ++bit) bits[bit] = (control_word >> bit & 1) != 0 ? 1.0f : 0.0f;
  check_not_aborted("all_reduce");
  SgdGlooError error{};
  check(api_.all_reduce_sum(group_, values.data(), values.size(), &error), error, "all_reduce");
  std::uint32_t result = 0;
  for (std::size_t bit = 0; bit < kControlFloats; ++bit) {
    if (bits[bit] != 0) result |= 1u << bit;
  }
  return result;
}

std::uint32_t GlooCollective::all_reduce(std::uint32_t control_word) {
  return sum_with_control(gradients_.span(), control_word);
}

std::uint32_t GlooCollective::agree(std::uint32_t control_word) {
  return sum_with_control(gradients_.span().last(kControlFloats), control_word);
}

void GlooCollective::broadcast(std::span<std::byte> bytes, int root) {
  SGD_ASSERT(root >= 0 && root < size_);
  if (bytes.empty()) return;
  check_not_aborted("broadcast");
  SgdGlooError error{};
  check(api_.broadcast(group_, bytes.data(), bytes.size(), root, &error), error, "broadcast");
}

std::vector<std::string> GlooCollective::all_gather(const std::string& bytes) {
  check_gather_bytes(bytes.size());
  check_not_aborted("all_gather");
  const auto ranks = static_cast<std::size_t>(size_);
  const std::vector<std::size_t> word_sizes(ranks, sizeof(std::size_t));
  const std::size_t own_size = bytes.size();
  std::vector<std::size_t> sizes(ranks);
  SgdGlooError error{};
  check(api_.all_gather(group_, &own_size, word_sizes.data(), sizes.data(), &error), error, "all_gather");
  for (const std::size_t size : sizes) check_gather_bytes(size);

  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  std::vector<std::string> gathered(ranks);
  if (total == 0) return gathered;
  std::string all(total, '\0');
  check(api_.all_gather(group_, bytes.data(), sizes.data(), all.data(), &error), error, "all_gather");
  std::size_t offset = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    gathered[r] = all.substr(offset, sizes[r]);
    offset += sizes[r];
  }
  return gathered;
}

void GlooCollective::barrier() {
  check_not_aborted("barrier");
  SgdGlooError error{};
  check(api_.barrier(group_, &error), error, "barrier");
}

void GlooCollective::abort() noexcept {
  aborted_.store(true);
  api_.abort(group_);
}

void GlooCollective::check(int code, const SgdGlooError& error, const char* operation) const {
  if (code == 0) return;
  if (aborted_.load()) throw CollectiveError(fmt::format("{} between hosts aborted", operation));
  throw CollectiveError(
      fmt::format("{} between hosts failed on host {} of {}: {}", operation, rank_, size_, error.text));
}

void GlooCollective::check_not_aborted(const char* operation) const {
  if (aborted_.load(std::memory_order_relaxed)) {
    throw CollectiveError(fmt::format("{} between hosts aborted", operation));
  }
}

}  // namespace sgd::worker
