// The C functions: what throws inside is a code and a text outside. Also keeps a forked child from touching the
// group of its parent, whose memory it does not have.

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/c_api/peer_group.hpp"
#include "worker/collective/c_api/sgd_collective.h"
#include "worker/collective/collective.hpp"

#define SGDC_EXPORT extern "C" __attribute__((visibility("default")))

struct SgdcGroup {
  std::unique_ptr<sgd::worker::PeerGroup> group;
  pid_t pid;
  std::string error;
};

namespace {

void leave_text(char* error, std::size_t error_bytes, const char* text) {
  if (error == nullptr || error_bytes == 0) return;
  const std::size_t bytes = std::min(std::strlen(text), error_bytes - 1);
  std::memcpy(error, text, bytes);
  error[bytes] = 0;
}

/// Longer than any run, and in nanoseconds far from the largest number.
constexpr sgd::Duration kForEver = std::chrono::hours(24 * 365 * 30);

template <typename Unit>
sgd::Duration time_of(std::int64_t count, std::int64_t least) {
  return Unit(std::clamp<std::int64_t>(count, least, std::chrono::duration_cast<Unit>(kForEver).count()));
}
sgd::Duration microseconds_of(std::int64_t microseconds) {
  return time_of<std::chrono::microseconds>(microseconds, 0);
}

template <typename Action>
int guarded(SgdcGroup* group, Action action) {
  try {
    if (group->pid != ::getpid())
      throw sgd::worker::CollectiveError("the group belongs to process " + std::to_string(group->pid) +
                                         ", and this is its child " + std::to_string(::getpid()) +
                                         ": a child must form a group of its own");
    return action() ? SGDC_DONE : SGDC_PENDING;
  } catch (const std::exception& failure) {
    group->error = failure.what();
  } catch (...) {
    group->error = "unknown error";
  }
  return SGDC_FAILED;
}

}  // namespace

SGDC_EXPORT int sgdc_version(void) {
  return SGDC_VERSION;
}

SGDC_EXPORT int sgdc_create(int size, uint64_t token, char* error, size_t error_bytes) {
  try {
    return sgd::worker::PeerRegion::create(size, token);
  } catch (const std::exception& failure) {
    leave_text(error, error_bytes, failure.what());
    return SGDC_FAILED;
  }
}

SGDC_EXPORT SgdcGroup* sgdc_open(int fd, uint64_t token, int rank, int size, const int32_t* pids, int own_cores,
                                 char* error, size_t error_bytes) {
  try {
    if (rank < 0 || rank >= size)
      throw sgd::worker::CollectiveError("rank " + std::to_string(rank) + " of " + std::to_string(size));
    auto group = std::make_unique<SgdcGroup>();
    group->pid = ::getpid();
    group->group = std::make_unique<sgd::worker::PeerGroup>(
        fd, token, rank, size, std::vector<std::int32_t>(pids, pids + size), own_cores != 0);
    return group.release();
  } catch (const std::exception& failure) {
    leave_text(error, error_bytes, failure.what());
    return nullptr;
  }
}

SGDC_EXPORT void sgdc_set_timeout(SgdcGroup* group, int64_t milliseconds) {
  group->group->set_timeout(time_of<std::chrono::milliseconds>(milliseconds, 1));
}

SGDC_EXPORT int sgdc_start(SgdcGroup* group, const SgdcRequest* request, int64_t microseconds) {
  return guarded(group, [&] { return group->group->start(*request, microseconds_of(microseconds)); });
}

SGDC_EXPORT int sgdc_advance(SgdcGroup* group, int64_t microseconds) {
  return guarded(group, [&] { return group->group->advance(microseconds_of(microseconds)); });
}

SGDC_EXPORT const char* sgdc_error(const SgdcGroup* group) {
  return group->error.c_str();
}

SGDC_EXPORT void sgdc_abort(SgdcGroup* group, const char* reason) {
  if (group->pid == ::getpid()) group->group->abort(reason);
}

SGDC_EXPORT void sgdc_close(SgdcGroup* group) {
  if (group->pid != ::getpid()) return;  // The parent's: the memory is not mapped here, and something else may be.
  delete group;
}
