#include "worker/collective/c_api/peer_group.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "worker/collective/c_api/reduction.hpp"
#include "worker/collective/collective.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kLineBytes = 64;
// Up to here a second barrier costs more than that every rank reduces everything.
constexpr std::size_t kDirectBytes = std::size_t{32} << 10;
// From here a message for others may go past the caches.
constexpr std::size_t kStreamedBytes = std::size_t{16} << 10;
constexpr std::size_t kBlockBytes = std::size_t{4} << 10;

/// In front of each part of an all_to_all. It is in the slot, which nobody writes to before all have read it.
struct alignas(kLineBytes) PartHead {
  std::uint64_t count;    ///< Elements of the whole message for the rank that reads it.
  std::uint64_t longest;  ///< Of the giver's messages: how many pieces there are, is known by all of them.
};

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  for (; bytes >= kLineBytes; to += kLineBytes, from += kLineBytes, bytes -= kLineBytes)
    for (std::size_t i = 0; i < kLineBytes; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();  // The barrier's own words do not wait for such stores.
#endif
  std::memcpy(to, from, bytes);
}

bool has_root(std::uint32_t operation) {
  return operation == SGDC_REDUCE || operation == SGDC_BROADCAST || operation == SGDC_GATHER ||
         operation == SGDC_SCATTER;
}
bool reduces(std::uint32_t operation) {
  return operation == SGDC_ALL_REDUCE || operation == SGDC_REDUCE || operation == SGDC_REDUCE_SCATTER;
}
// Whether each rank has a part of its own in a slot.
bool is_divided(std::uint32_t operation) {
  return operation == SGDC_SCATTER || operation == SGDC_REDUCE_SCATTER || operation == SGDC_ALL_TO_ALL;
}
std::uint64_t divide_up(std::uint64_t number, std::uint64_t by) {
  return (number + by - 1) / by;
}

}  // namespace

PeerGroup::PeerGroup(int fd, std::uint64_t token, int rank, int size, const std::vector<std::int32_t>& pids,
                     bool own_cores)
    : region_(fd, token, size), rank_(rank), size_(size), barrier_(region_, rank, pids, own_cores) {}

PeerGroup::~PeerGroup() {
  region_.line(rank_).left.store(1, std::memory_order_release);
}

void PeerGroup::check(const SgdcRequest& request) const {
  const std::string name = name_of_peer_operation(request.operation);
  if (is_waiting_) throw CollectiveError(name + ": the operation before it is not done");
  if (request.operation < SGDC_ALL_REDUCE || request.operation > SGDC_BARRIER)
    throw CollectiveError("operation " + std::to_string(request.operation) + " is unknown");
  if (element_bytes(request.type) == 0)
    throw CollectiveError(name + ": type " + std::to_string(request.type) + " is unknown");
  if (reduces(request.operation) && !can_reduce(request.type, request.reduction))
    throw CollectiveError(name + ": reduction " + std::to_string(request.reduction) + " is not defined for type " +
                          std::to_string(request.type));
  if (has_root(request.operation) && (request.root < 0 || request.root >= size_))
    throw CollectiveError(name + ": root " + std::to_string(request.root) + " is not a rank of 0 to " +
                          std::to_string(size_ - 1));
  if (request.operation != SGDC_ALL_TO_ALL) return;
  const auto own = [this](const std::uint64_t* counts) { return counts == nullptr ? 0 : counts[rank_]; };
  if (own(request.input_counts) != own(request.output_counts))
    throw CollectiveError(name + ": this rank gives itself " + std::to_string(own(request.input_counts)) +
                          " elements, and takes " + std::to_string(own(request.output_counts)));
}

bool PeerGroup::start(const SgdcRequest& request, Duration longest) {
  check(request);
  first_piece_ += pieces_;  // Of the operation before.
  request_ = request;
  if (!has_root(request.operation)) request_.root = 0;
  if (!reduces(request.operation)) request_.reduction = 0;
  element_ = element_bytes(request.type);
  const auto size = static_cast<std::size_t>(size_);
  const bool to_all = is_divided(request.operation);
  const bool from_all =
      request.operation == SGDC_ALL_GATHER || request.operation == SGDC_GATHER || request.operation == SGDC_ALL_TO_ALL;
  const auto copied = [](auto* from, std::size_t count) {
    using Value = std::remove_cv_t<std::remove_pointer_t<decltype(from)>>;
    return from == nullptr ? std::vector<Value>(count) : std::vector<Value>(from, from + count);
  };
  inputs_ = copied(request.inputs, to_all ? size : 1);
  outputs_ = copied(request.outputs, from_all ? size : 1);
  input_counts_ = copied(request.input_counts, size);
  output_counts_ = copied(request.output_counts, size);
  step_ = 0;
  spent_ = Duration::zero();
  plan();
  is_past_caches_ = choice_.is_past_caches(request_.count * element_);
  return advance(longest);
}

void PeerGroup::plan() {
  in_slices_ = false;
  std::size_t slot = is_divided(request_.operation) ? sub_slot() : kSlotBytes;
  if (request_.operation == SGDC_ALL_REDUCE && request_.count * element_ > kDirectBytes) {
    in_slices_ = size_ > 1;
  } else if (request_.operation == SGDC_ALL_TO_ALL) {
    slot -= sizeof(PartHead);
    request_.count = 0;  // Differs between ranks: how many pieces is known after the first barrier.
  }
  piece_count_ = slot / element_;
  pieces_ = std::max<std::uint64_t>(1, divide_up(request_.count, piece_count_));
}

void PeerGroup::plan_all_to_all() {
  std::uint64_t longest = longest_input();
  for (int from = 0; from < size_; ++from) {
    if (from == rank_) continue;
    PartHead head;
    std::memcpy(&head, region_.given(from, parity(0)) + own_offset(), sizeof(head));
    longest = std::max(longest, head.longest);
    const std::uint64_t wanted = output_counts_[static_cast<std::size_t>(from)];
    if (head.count == wanted) continue;
    const std::string reason = std::string(name_of_peer_operation(request_.operation)) + ": rank " +
                               std::to_string(from) + " gives rank " + std::to_string(rank_) + " " +
                               std::to_string(head.count) + " elements, and that one takes " + std::to_string(wanted);
    barrier_.abort(reason);
    throw CollectiveError(reason);
  }
  pieces_ = std::max<std::uint64_t>(1, divide_up(longest, piece_count_));
}

std::uint64_t PeerGroup::longest_input() const {
  return *std::max_element(input_counts_.begin(), input_counts_.end());
}

bool PeerGroup::advance(Duration longest) {
  for (;;) {
    if (is_waiting_) {
      is_waiting_ = false;  // Also if it throws: what comes next tells the reason again.
      is_waiting_ = !barrier_.pass(longest);
      if (is_waiting_) return false;
      ++step_;
    }
    if (!measured_step()) return true;
    const auto root = static_cast<std::uint64_t>(static_cast<std::uint32_t>(request_.root)) << 32;
    const Call call{static_cast<Operation>(request_.operation), root | request_.reduction << 8 | request_.type,
                    request_.count};
    if (barrier_.arrive(call))
      ++step_;
    else
      is_waiting_ = true;
  }
}

/// A large all_reduce tells which way of writing for others suits the machine.
bool PeerGroup::measured_step() {
  if (!in_slices_ || choice_.is_made()) return step();
  const auto begin = std::chrono::steady_clock::now();
  const bool goes_on = step();
  spent_ += std::chrono::steady_clock::now() - begin;
  if (!goes_on) choice_.note(request_.count * element_, spent_);
  return goes_on;
}

bool PeerGroup::step() {
  if (step_ == 1 && request_.operation == SGDC_ALL_TO_ALL) plan_all_to_all();
  if (in_slices_) {
    if (step_ < pieces_) give_for_reduction(step_);
    if (step_ >= 1 && step_ <= pieces_) reduce_own_slice(step_ - 1);
    if (step_ >= 2) take_slices(step_ - 2);
    return step_ < pieces_ + 1;
  }
  if (step_ >= 1) take(step_ - 1);
  if (step_ < pieces_) give(step_);
  return step_ < pieces_;
}

void PeerGroup::give(std::uint64_t piece) {
  std::byte* const slot = region_.given(rank_, parity(piece));
  const bool is_root = rank_ == request_.root;
  switch (request_.operation) {
    case SGDC_BROADCAST:
      if (!is_root) return;
      break;
    case SGDC_BARRIER:
      return;
    case SGDC_SCATTER:
      if (!is_root) return;
      [[fallthrough]];
    case SGDC_REDUCE_SCATTER: {
      const Part part = part_of(piece, request_.count);
      for (int to = 0; to < size_; ++to)
        if (to != rank_) give_part(slot + static_cast<std::size_t>(to) * sub_slot(), input(to, part.begin), part.count);
      return;
    }
    case SGDC_ALL_TO_ALL:
      return give_to_each(piece, slot);
    default:
      break;
  }
  const Part part = part_of(piece, request_.count);
  give_part(slot, input(0, part.begin), part.count);
}

void PeerGroup::give_to_each(std::uint64_t piece, std::byte* slot) const {
  const std::uint64_t longest = longest_input();
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    const auto index = static_cast<std::size_t>(to);
    std::byte* const place = slot + index * sub_slot();
    const PartHead head{input_counts_[index], longest};
    std::memcpy(place, &head, sizeof(head));
    const Part part = part_of(piece, input_counts_[index]);
    give_part(place + sizeof(head), input(to, part.begin), part.count);
  }
}

void PeerGroup::give_part(std::byte* slot, const std::byte* from, std::uint64_t count) const {
  if (count * element_ >= kStreamedBytes)
    write(slot, from, count * element_);
  else
    copy(slot, from, count);
}

void PeerGroup::write(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (is_past_caches_)
    stream_copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void PeerGroup::take(std::uint64_t piece) {
  const Part part = part_of(piece, request_.count);
  const std::size_t side = parity(piece);
  const bool is_root = rank_ == request_.root;
  switch (request_.operation) {
    case SGDC_REDUCE:
      if (!is_root) return;
      [[fallthrough]];
    case SGDC_ALL_REDUCE:
      return reduce(input(0, part.begin), 0, side, output(0, part.begin), part.count);
    case SGDC_REDUCE_SCATTER:
      return reduce(input(rank_, part.begin), own_offset(), side, output(0, part.begin), part.count);
    case SGDC_BROADCAST:
      if (!is_root) copy(output(0, part.begin), region_.given(request_.root, side), part.count);
      return;
    case SGDC_SCATTER:
      return copy(output(0, part.begin),
                  is_root ? input(rank_, part.begin) : region_.given(request_.root, side) + own_offset(), part.count);
    case SGDC_GATHER:
      if (!is_root) return;
      [[fallthrough]];
    case SGDC_ALL_GATHER:
      for (int from = 0; from < size_; ++from)
        copy(output(from, part.begin), from == rank_ ? input(0, part.begin) : region_.given(from, side), part.count);
      return;
    case SGDC_ALL_TO_ALL:
      for (int from = 0; from < size_; ++from) {
        const Part theirs = part_of(piece, output_counts_[static_cast<std::size_t>(from)]);
        copy(output(from, theirs.begin),
             from == rank_ ? input(rank_, theirs.begin) : region_.given(from, side) + own_offset() + sizeof(PartHead),
             theirs.count);
      }
      return;
    default:
      return;
  }
}

void PeerGroup::give_for_reduction(std::uint64_t piece) {
  const Part part = part_of(piece, request_.count);
  const Part own = slice_of(part, rank_);
  std::byte* const slot = region_.given(rank_, parity(piece));
  const std::uint64_t before = own.begin - part.begin;
  const std::uint64_t after = before + own.count;
  write(slot, input(0, part.begin), before * element_);
  write(slot + after * element_, input(0, part.begin + after), (part.count - after) * element_);
}

void PeerGroup::reduce_own_slice(std::uint64_t piece) {
  const Part part = part_of(piece, request_.count);
  const Part own = slice_of(part, rank_);
  std::byte* const shared = region_.reduced(rank_, parity(piece));
  const std::size_t block = kBlockBytes / element_;
  for (std::uint64_t done = 0; done < own.count; done += block) {  // What is copied is in the first-level cache.
    const std::uint64_t count = std::min<std::uint64_t>(block, own.count - done);
    const std::uint64_t begin = own.begin + done;
    reduce(input(0, begin), (begin - part.begin) * element_, parity(piece), output(0, begin), count);
    write(shared + done * element_, output(0, begin), count * element_);
  }
}

void PeerGroup::take_slices(std::uint64_t piece) {
  const Part part = part_of(piece, request_.count);
  for (int from = 0; from < size_; ++from) {
    const Part theirs = slice_of(part, from);
    if (from != rank_) copy(output(0, theirs.begin), region_.reduced(from, parity(piece)), theirs.count);
  }
}

PeerGroup::Part PeerGroup::part_of(std::uint64_t piece, std::uint64_t total) const {
  const std::uint64_t begin = std::min(piece * piece_count_, total);
  return {begin, std::min(piece_count_, total - begin)};
}

// Whole cache lines, so that no two ranks write to one.
PeerGroup::Part PeerGroup::slice_of(const Part& part, int rank) const {
  const std::uint64_t per_line = kLineBytes / element_;
  const auto size = static_cast<std::uint64_t>(size_);
  const std::uint64_t per_rank = divide_up(divide_up(part.count, per_line), size) * per_line;
  const std::uint64_t begin = std::min(static_cast<std::uint64_t>(rank) * per_rank, part.count);
  return {part.begin + begin, std::min(per_rank, part.count - begin)};
}

const std::byte* PeerGroup::input(int rank, std::uint64_t begin) const {
  return static_cast<const std::byte*>(inputs_[static_cast<std::size_t>(rank)]) + begin * element_;
}

std::byte* PeerGroup::output(int rank, std::uint64_t begin) const {
  return static_cast<std::byte*>(outputs_[static_cast<std::size_t>(rank)]) + begin * element_;
}

std::size_t PeerGroup::sub_slot() const {
  static_assert(kSlotBytes / kPeersMax >= 2 * sizeof(PartHead));
  return kSlotBytes / static_cast<std::size_t>(size_) / kLineBytes * kLineBytes;
}

std::size_t PeerGroup::own_offset() const {
  return static_cast<std::size_t>(rank_) * sub_slot();
}

void PeerGroup::copy(std::byte* to, const std::byte* from, std::uint64_t count) const {
  if (count != 0 && to != from) std::memmove(to, from, count * element_);
}

void PeerGroup::reduce(const std::byte* own, std::size_t offset, std::size_t side, std::byte* to, std::uint64_t count) {
  sources_.clear();
  for (int rank = 0; rank < size_; ++rank) sources_.push_back(rank == rank_ ? own : region_.given(rank, side) + offset);
  reduce_elements(request_.type, request_.reduction, sources_, to, count);
}

}  // namespace sgd::worker
