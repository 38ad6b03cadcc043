#include "worker/collective/composed_collective.hpp"

#include <cstring>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

// Messages packed into one: a u64 size before each.
std::string pack(const std::vector<std::string>& messages) {
  std::string packed;
  for (const std::string& message : messages) {
    const std::uint64_t size = message.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof(size));
    packed += message;
  }
  return packed;
}

std::vector<std::string> unpack(const std::string& packed, std::size_t count) {
  std::vector<std::string> messages;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t size = 0;
    if (packed.size() - offset < sizeof(size)) throw CollectiveError("all_gather: a host sent too little");
    std::memcpy(&size, packed.data() + offset, sizeof(size));
    offset += sizeof(size);
    if (packed.size() - offset < size) throw CollectiveError("all_gather: a host sent too little");
    messages.push_back(packed.substr(offset, size));
    offset += size;
  }
  if (offset != packed.size()) throw CollectiveError("all_gather: a host sent too much");
  return messages;
}

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

}  // namespace

ComposedCollective::ComposedCollective(int rank, Placement placement, std::unique_ptr<ShmCollective> local,
                                       std::unique_ptr<GlooCollective> between)
    : rank_(rank), placement_(std::move(placement)), local_(std::move(local)), between_(std::move(between)) {
  SGD_ASSERT(local_ || between_);
  std::vector<std::vector<int>> by_host(static_cast<std::size_t>(placement_.hosts()));
  for (int host = 0; host < placement_.hosts(); ++host) {
    for (int one = 0; one < placement_.host_sizes[static_cast<std::size_t>(host)]; ++one)
      by_host[static_cast<std::size_t>(host)].push_back(placement_.rank_at(host, one));
  }
  const int own_host = placement_.ranks[static_cast<std::size_t>(rank)].host;
  if (local_) local_->name_ranks(by_host[static_cast<std::size_t>(own_host)]);
  if (between_) between_->name_ranks(std::move(by_host));
}

template <class Action>
auto ComposedCollective::inside_host(Action action) {
  try {
    return action();
  } catch (const CollectiveMismatch& mismatch) {
    if (between_) between_->tell_mismatch(mismatch.what());
    throw;
  }
}

template <class Action>
auto ComposedCollective::between_hosts(Action action) {
  try {
    return action();
  } catch (const CollectiveMismatch& mismatch) {
    tell_host(mismatch.what());
    throw;
  } catch (...) {
    if (local_) local_->abort();
    throw;
  }
}

void ComposedCollective::tell_host(const std::string& text) noexcept {
  if (!local_) return;
  try {
    local_->tell_mismatch(text);
  } catch (const std::exception&) {
    // Ignoring: it throws what this rank throws anyway, or the host has been aborted.
  }
}

std::uint32_t ComposedCollective::all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  if (!local_) return between_->all_reduce(control_word, offset, count);
  std::uint32_t word = inside_host([&] { return local_->reduce_to_leader(control_word, offset, count); });
  if (between_) {
    const std::span<float> sums = local_->gradients().subspan(offset, count);
    word = between_hosts([&] { return between_->sum(word, offset, sums); });
  }
  return local_->share_from_leader(word, offset, count);
}

std::uint32_t ComposedCollective::agree(std::uint32_t control_word, const Call& call) {
  if (!local_) return between_->agree(control_word, call);
  std::uint32_t word = inside_host([&] { return local_->agree(control_word, call); });
  if (between_) word = between_hosts([&] { return between_->agree(word, call); });
  return local_->agree(word, call);
}

void ComposedCollective::broadcast(std::span<std::byte> bytes, int root) {
  SGD_ASSERT(root >= 0 && root < world_size());
  const RankPlace from = placement_.ranks[static_cast<std::size_t>(root)];
  const bool on_root_host = placement_.ranks[static_cast<std::size_t>(rank_)].host == from.host;
  if (local_ && on_root_host) inside_host([&] { local_->broadcast(bytes, from.local_rank); });
  if (between_) between_hosts([&] { between_->broadcast(bytes, from.host); });
  if (local_ && !on_root_host) inside_host([&] { local_->broadcast(bytes, 0); });
}

// On a leader: every rank's message, packed in the order of hosts and local ranks. Else empty.
std::string ComposedCollective::gather_at_leader(const std::string& bytes) {
  const std::vector<std::string> host_messages =
      local_ ? inside_host([&] { return local_->all_gather(bytes); }) : std::vector<std::string>{bytes};
  if (!between_) return {};
  const std::string packed = pack(host_messages);
  std::string all;
  for (const std::string& host : between_hosts([&] { return between_->all_gather(packed); })) all += host;
  return all;
}

std::vector<std::string> ComposedCollective::all_gather(const std::string& bytes) {
  std::string all = gather_at_leader(bytes);
  if (local_) {
    std::uint64_t size = all.size();
    local_->broadcast(std::as_writable_bytes(std::span(&size, 1)), 0);
    all.resize(size);
    local_->broadcast(bytes_of(all), 0);
  }
  std::vector<std::string> by_host = unpack(all, placement_.ranks.size());
  std::vector<std::string> gathered(by_host.size());
  std::size_t next = 0;
  for (int host = 0; host < placement_.hosts(); ++host) {
    for (int local = 0; local < placement_.host_sizes[static_cast<std::size_t>(host)]; ++local) {
      gathered[static_cast<std::size_t>(placement_.rank_at(host, local))] = std::move(by_host[next++]);
    }
  }
  return gathered;
}

void ComposedCollective::barrier() {
  if (local_) inside_host([&] { local_->barrier(); });
  if (between_) between_hosts([&] { between_->barrier(); });
  if (local_) local_->barrier();
}

void ComposedCollective::abort() noexcept {
  if (local_) local_->abort();
  if (between_) between_->abort();
}

}  // namespace sgd::worker
