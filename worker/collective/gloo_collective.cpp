#include "worker/collective/gloo_collective.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/collective/gloo_loader.hpp"
#include "worker/collective/limits.hpp"

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
      gradients_(gradient_count),
      headers_(static_cast<std::size_t>(size)) {
  for (int member = 0; member < size; ++member) names_.push_back({member});
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

SgdGlooHeader GlooCollective::header_for(const Call& call, std::uint32_t control_word) const {
  check_not_aborted(call.operation);
  SgdGlooHeader own{};
  own.operation = static_cast<std::uint32_t>(call.operation);
  own.control = control_word;
  own.first = call.first;
  own.second = call.second;
  return own;
}

std::uint32_t GlooCollective::agreed() const {
  std::uint32_t word = 0;
  bool same = true;
  std::vector<Caller> callers;
  for (const SgdGlooHeader& header : headers_) {
    const Call call{static_cast<Operation>(header.operation), header.first, header.second};
    if (call.operation == Operation::kTell) throw CollectiveMismatch(header.note);
    callers.push_back({call, names_[callers.size()]});
    same = same && call == callers.front().call;
    word |= header.control;
  }
  if (!same) throw CollectiveMismatch(mismatch_text(callers));
  return word;
}

std::uint32_t GlooCollective::exchange_headers(const SgdGlooHeader& own) {
  SgdGlooError error{};
  check(api_.exchange_headers(group_, &own, headers_.data(), &error), error,
        name_of(static_cast<Operation>(own.operation)));
  return agreed();
}

std::uint32_t GlooCollective::sum(std::uint32_t control_word, std::size_t offset, std::span<float> values) {
  const SgdGlooHeader own = header_for({Operation::kAllReduce, offset, values.size()}, control_word);
  SgdGlooError error{};
  int finite = 1;
  check(api_.all_reduce_sum(group_, &own, headers_.data(), values.data(), values.size(), &finite, &error), error,
        name_of(Operation::kAllReduce));
  return agreed() | (finite != 0 ? 0 : control::kInfinite);
}

std::uint32_t GlooCollective::all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  SGD_ASSERT(offset <= gradients_.size() && count <= gradients_.size() - offset);
  return sum(control_word, offset, gradients_.span().subspan(offset, count));
}

std::uint32_t GlooCollective::agree(std::uint32_t control_word, const Call& call) {
  return exchange_headers(header_for(call, control_word));
}

void GlooCollective::broadcast(std::span<std::byte> bytes, int root) {
  SGD_ASSERT(root >= 0 && root < size_);
  const auto root_name = static_cast<std::uint64_t>(names_[static_cast<std::size_t>(root)].front());
  (void)exchange_headers(
      header_for({Operation::kBroadcast, root_name, bytes.size()}));  // Ignoring: no control word takes part.
  if (bytes.empty()) return;
  SgdGlooError error{};
  check(api_.broadcast(group_, bytes.data(), bytes.size(), root, &error), error, name_of(Operation::kBroadcast));
}

std::vector<std::string> GlooCollective::all_gather(const std::string& bytes) {
  check_gather_bytes(bytes.size());
  SgdGlooHeader own = header_for({Operation::kAllGather});
  own.bytes = bytes.size();
  (void)exchange_headers(own);  // Ignoring: no control word takes part.
  std::vector<std::size_t> sizes;
  for (const SgdGlooHeader& header : headers_) {
    check_gather_bytes(header.bytes);
    sizes.push_back(header.bytes);
  }
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  std::vector<std::string> gathered(sizes.size());
  if (total == 0) return gathered;
  std::string all(total, '\0');
  SgdGlooError error{};
  check(api_.all_gather(group_, bytes.data(), sizes.data(), all.data(), &error), error, name_of(Operation::kAllGather));
  std::size_t offset = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    gathered[r] = all.substr(offset, sizes[r]);
    offset += sizes[r];
  }
  return gathered;
}

void GlooCollective::barrier() {
  (void)exchange_headers(header_for({Operation::kBarrier}));  // Ignoring: no control word takes part.
}

void GlooCollective::tell_mismatch(const std::string& text) noexcept {
  SgdGlooHeader own{};
  own.operation = static_cast<std::uint32_t>(Operation::kTell);
  text.copy(own.note, sizeof own.note - 1);
  SgdGlooError ignored{};  // Who cannot be told any more is aborted by the launcher.
  if (!aborted_.load()) (void)api_.exchange_headers(group_, &own, headers_.data(), &ignored);
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

void GlooCollective::check_not_aborted(Operation operation) const {
  if (aborted_.load(std::memory_order_relaxed)) {
    throw CollectiveError(fmt::format("{} between hosts aborted", name_of(operation)));
  }
}

}  // namespace sgd::worker
