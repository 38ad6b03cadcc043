// NCCL's interface over memory that processes of one machine share: addresses of the host serve as those of devices,
// and sums are made in rank order. Nothing is done beside the calls: each call, and each look at the state, does as
// much as can be done without waiting, so that everything is kInProgress as long as a rank is missing.
//
//   FAKE_NCCL_VERSION=21200    says it is that version
//   FAKE_NCCL_HANG_INIT=1      never connects
//   FAKE_NCCL_HANG_AFTER=N     the sum after N never ends
//   FAKE_NCCL_ERROR_AFTER=N    after N sums the group has failed, by FAKE_NCCL_ERROR (6: a peer is gone)
//   FAKE_NCCL_INIT_ERROR=E     the start of a group fails by E
//   FAKE_NCCL_CONNECT_ERROR=E  it fails by E while it connects
//   FAKE_NCCL_RANK=R           the last five for that rank alone
//   FAKE_NCCL_ABORT_MS=N       an abort takes as long
//
// Refuses what NCCL refuses, or what would wait: settings that are none of NCCL's, NCCL_COMM_BLOCKING=1, which it takes
// in place of a setting, a call while another is in progress.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr int kRanksMax = 8;
constexpr std::size_t kPiece = 4096;

struct Id {
  char bytes[128];
};

struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

/// What the ranks of a group share. The memory of rank 0 begins with zeros.
struct Group {
  std::atomic<std::uint64_t> joined;
  std::atomic<std::uint64_t> written;  ///< Pieces that ranks have put here, over all sums.
  std::atomic<std::uint64_t> read;     ///< And whose sum they have taken.
  float pieces[kRanksMax][kPiece];
};

std::atomic<int> live{0};
std::atomic<int> aborted_without_device{0};
thread_local bool has_device = false;

int number_in(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

int knob_of(int rank, const char* name) {
  return number_in("FAKE_NCCL_RANK", rank) == rank ? number_in(name, -1) : -1;
}

struct Communicator {
  Group* group = nullptr;
  int rank = 0;
  int size = 0;
  bool joined = false;
  // The sum in work.
  const float* from = nullptr;
  float* to = nullptr;
  std::size_t left = 0;
  bool has_written = false;
  std::uint64_t pieces = 0;  // Done, over all sums.
  int sums = 0;              // Begun.

  [[nodiscard]] int knob(const char* name) const { return knob_of(rank, name); }
  [[nodiscard]] std::uint64_t all(std::uint64_t rounds) const { return rounds * static_cast<std::uint64_t>(size); }

  int progress() {
    if (knob("FAKE_NCCL_HANG_INIT") == 1) return kInProgress;
    if (const int error = knob("FAKE_NCCL_CONNECT_ERROR"); error > 0) return error;
    if (!joined) joined = group->joined.load() >= all(1);
    if (!joined) return kInProgress;
    if (const int after = knob("FAKE_NCCL_ERROR_AFTER"); after >= 0 && sums > after)
      return number_in("FAKE_NCCL_ERROR", 6);
    if (const int after = knob("FAKE_NCCL_HANG_AFTER"); after >= 0 && sums > after) return kInProgress;
    while (left > 0)
      if (!pass_piece()) return kInProgress;
    return kSuccess;
  }

  /// False: others are missing.
  bool pass_piece() {
    const std::size_t count = std::min(left, kPiece);
    if (!has_written) {
      if (group->read.load() < all(pieces)) return false;  // Somebody still reads the piece before.
      std::memcpy(group->pieces[rank], from, count * sizeof(float));
      has_written = true;
      group->written.fetch_add(1);
    }
    if (group->written.load() < all(pieces + 1)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = group->pieces[0][i];
      for (int r = 1; r < size; ++r) sum += group->pieces[r][i];
      to[i] = sum;
    }
    group->read.fetch_add(1);
    has_written = false;
    ++pieces;
    from += count;
    to += count;
    left -= count;
    return true;
  }
};

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  *version = number_in("FAKE_NCCL_VERSION", 22809);
  return kSuccess;
}

/// The memory is met through /proc, so that none is left behind by a rank that is killed.
int ncclGetUniqueId(Id* id) {
  const int fd = ::memfd_create("fake-nccl", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, sizeof(Group)) != 0) return kSystemError;
  (void)std::snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", static_cast<int>(::getpid()), fd);
  return kSuccess;
}

int ncclCommInitRankConfig(void** made, int size, Id id, int rank, Config* config) {
  if (config == nullptr || config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0)
    return kInvalidArgument;
  if (number_in("NCCL_COMM_BLOCKING", 0) == 1) return kInvalidArgument;
  if (size < 1 || size > kRanksMax || rank < 0 || rank >= size) return kInvalidArgument;
  if (const int error = knob_of(rank, "FAKE_NCCL_INIT_ERROR"); error > 0) return error;
  const int fd = ::open(id.bytes, O_RDWR | O_CLOEXEC);
  if (fd < 0) return kSystemError;
  void* memory = ::mmap(nullptr, sizeof(Group), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  (void)::close(fd);
  if (memory == MAP_FAILED) return kSystemError;
  auto* one = new Communicator;
  one->group = static_cast<Group*>(memory);
  one->rank = rank;
  one->size = size;
  one->group->joined.fetch_add(1);
  ++live;
  *made = one;
  return kInProgress;
}

int ncclCommGetAsyncError(void* communicator, int* state) {
  *state = static_cast<Communicator*>(communicator)->progress();
  return kSuccess;
}

#ifndef FAKE_NCCL_WITHOUT_ABORT
int ncclCommAbort(void* communicator) {
  auto* one = static_cast<Communicator*>(communicator);
  if (!has_device) ++aborted_without_device;
  (void)::poll(nullptr, 0, number_in("FAKE_NCCL_ABORT_MS", 0));
  (void)::munmap(one->group, sizeof(Group));
  delete one;
  --live;
  return kSuccess;
}
#endif

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation, void* communicator, void*) {
  auto* one = static_cast<Communicator*>(communicator);
  if (type != 7 || operation != 0) return kInvalidArgument;
  if (!one->joined || one->left > 0) return kInvalidUsage;
  one->from = static_cast<const float*>(from);
  one->to = static_cast<float*>(to);
  one->left = count;
  ++one->sums;
  return one->progress();
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case 1:
      return "unhandled cuda error";
    case 2:
      return "unhandled system error";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    default:
      return "some error";
  }
}

const char* ncclGetLastError(void*) {
  return "";
}

/// For tests: communicators that were not given up.
int fake_nccl_live() {
  return live.load();
}

/// For tests: the thread that calls this has chosen its device.
void fake_nccl_enter() {
  has_device = true;
}

/// For tests: aborts by threads that had chosen none.
int fake_nccl_aborted_without_device() {
  return aborted_without_device.load();
}
}
