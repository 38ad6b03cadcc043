#include "worker/collective/nccl_group.hpp"

#include <charconv>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "worker/collective/collective.hpp"

namespace sgd::worker {
namespace {

/// A call that should not wait, and does, is broken by aborting beside it.
constexpr auto kCallLimit = std::chrono::milliseconds(200);

}  // namespace

std::string NcclGroup::make_id(const NcclApi& api) {
  nccl::Id id{};
  if (const int result = api.get_unique_id(&id); result != nccl::kSuccess)
    throw CollectiveError(fmt::format("NCCL gives no id for a group: {} ({}); NCCL_DEBUG=INFO tells more",
                                      api.error_string(result), api.last_error(nullptr)));
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

nccl::Communicator NcclGroup::live() const {
  if (aborted_) throw CollectiveError("aborted");
  return communicator_;
}

void NcclGroup::check(int result, const char* function) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  if (aborted_) throw CollectiveError("aborted");
  const char* detail = api_.last_error(communicator_);
  const std::string words = detail == nullptr || *detail == 0 ? "" : fmt::format(" ({})", detail);
  throw CollectiveError(fmt::format("NCCL: {}: {}{}", function, api_.error_string(result), words));
}

void NcclGroup::begin(const std::string& text) {
  nccl::Id id{};
  if (text.size() != 2 * sizeof id.bytes) throw CollectiveError("NCCL: rank 0 gave no id");
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      throw CollectiveError("NCCL: rank 0 gave no id");
    id.bytes[i] = static_cast<char>(byte);
  }
  const std::lock_guard lock(mutex_);
  (void)live();  // Ignoring: there is none yet; it throws after an abort.
  nccl::Config config;
  check(api_.init(&communicator_, size_, id, rank_, &config), "ncclCommInitRankConfig");
}

void NcclGroup::all_reduce(float* values, std::size_t count, void* stream) {
  const std::lock_guard lock(mutex_);
  check(api_.all_reduce(values, values, count, nccl::kFloat32, nccl::kSum, live(), stream), "ncclAllReduce");
}

bool NcclGroup::is_ready() {
  const std::lock_guard lock(mutex_);
  int state = nccl::kSuccess;
  check(api_.async_error(live(), &state), "ncclCommGetAsyncError");
  check(state, "a collective failed");
  return state == nccl::kSuccess;
}

void NcclGroup::abort() noexcept {
  // A thread that holds it longer is stuck inside of NCCL, and does not touch the communicator but there.
  const bool is_locked = mutex_.try_lock_for(kCallLimit);
  if (!aborted_.exchange(true) && communicator_ != nullptr)
    (void)api_.abort(communicator_);  // Ignoring: nothing else is left to do with it.
  if (is_locked) mutex_.unlock();
}

}  // namespace sgd::worker
