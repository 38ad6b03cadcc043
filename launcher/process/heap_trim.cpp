#include "launcher/process/heap_trim.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <boost/asio/steady_timer.hpp>

namespace sgd::process {

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long pages = 0;
  const bool is_read = std::fscanf(file, "%*u %lu", &pages) == 1;
  std::fclose(file);
  return is_read ? pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

bool TrimRule::is_due(std::size_t resident) {
  if (least_ == 0 || resident < least_) least_ = resident;
  return resident - least_ >= std::max(kGrowth, least_ / 4);
}

struct HeapTrim::Ticking : std::enable_shared_from_this<Ticking> {
  Ticking(boost::asio::io_context& io, Duration each) : timer(io), interval(each) {}

  void wait() {
    timer.expires_after(interval);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->is_over) return;
      self->look();
      self->wait();
    });
  }

  void look() {
    if (!rule.is_due(resident_bytes())) return;
    ::malloc_trim(0);
    rule.trimmed(resident_bytes());
  }

  boost::asio::steady_timer timer;
  Duration interval;
  TrimRule rule;
  bool is_over = false;
};

/// Each of a daemon's threads, which mostly wait for a disk, would have a heap of its own, and keep what it once
/// needed.
HeapTrim::HeapTrim(boost::asio::io_context& io, Duration interval) : ticking_(std::make_shared<Ticking>(io, interval)) {
  (void)::mallopt(M_ARENA_MAX, 2);
  ticking_->wait();
}

HeapTrim::~HeapTrim() {
  ticking_->is_over = true;
  ticking_->timer.cancel();
}

}  // namespace sgd::process
