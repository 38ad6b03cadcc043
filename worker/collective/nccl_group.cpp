#include "worker/collective/nccl_group.hpp"

#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/thread.hpp"
#include "worker/collective/collective.hpp"
#include "worker/collective/factory.hpp"

namespace sgd::worker {
namespace {

/// A call that should not wait, and does, is broken by aborting beside it.
constexpr auto kCallLimit = std::chrono::milliseconds(200);

struct CleanupThread {
  std::thread thread;
  std::shared_ptr<const std::atomic<bool>> is_done;
};

/// Owns the threads that give communicators up. Those that are done are joined when the next one comes; the process
/// ends by _exit(), without the rest.
void own(CleanupThread cleanup) {
  static std::mutex mutex;
  static auto* const all = new std::vector<CleanupThread>();  // Never destroyed: nobody waits for a thread in it.
  const std::lock_guard lock(mutex);
  std::erase_if(*all, [](CleanupThread& one) {
    if (!*one.is_done) return false;
    one.thread.join();
    return true;
  });
  all->push_back(std::move(cleanup));
}

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
  const std::string text = fmt::format("NCCL: {}: {}{}", function, api_.error_string(result), words);
  if (result == nccl::kInvalidArgument || result == nccl::kInvalidUsage)
    throw CollectiveSetupError(text + "; NCCL_DEBUG=INFO tells more");
  throw CollectiveError(text);
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
  if (!aborted_.exchange(true) && communicator_ != nullptr) leave();
  if (is_locked) mutex_.unlock();
}

/// NCCL's proxy threads look for an abort twice a second, and ncclCommAbort waits for one after the other. It ends by
/// making that device current again which its thread had: of a thread that has chosen none that is the first one, on
/// which a context of hundreds of MB would begin for each rank.
void NcclGroup::leave() {
  const auto work = [enter = enter_, abort = api_.abort, communicator = communicator_, has_left = has_left_] {
    if (enter) enter();
    (void)abort(communicator);  // Ignoring: nothing else is left to do with it.
    *has_left = true;
  };
  Result<std::thread> thread = start_thread(work);
  if (thread)
    own({std::move(thread).value(), has_left_});
  else
    work();
}

}  // namespace sgd::worker
