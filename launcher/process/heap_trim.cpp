#include "launcher/process/heap_trim.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <boost/asio/steady_timer.hpp>

namespace sgd::process {

namespace {

struct Pages {
  unsigned long resident = 0;
  unsigned long shared = 0;  ///< Of them, with files or other processes.
};

Pages pages_of_this_process() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return {};
  Pages pages;
  const bool is_read = std::fscanf(file, "%*u %lu %lu", &pages.resident, &pages.shared) == 2;
  std::fclose(file);
  return is_read ? pages : Pages();
}

std::size_t bytes_of(unsigned long pages) {
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::size_t resident_bytes() {
  return bytes_of(pages_of_this_process().resident);
}

HeapBytes heap_bytes() {
  const Pages pages = pages_of_this_process();
  const std::size_t own = bytes_of(pages.resident - std::min(pages.shared, pages.resident));
  const struct mallinfo2 heap = ::mallinfo2();
  const std::size_t used = heap.uordblks + heap.hblkhd;
  return {used, own - std::min(own, used)};
}

bool TrimRule::is_due(const HeapBytes& heap) {
  least_ = std::min(heap.idle, least_.value_or(heap.idle));
  return heap.idle - *least_ >= std::max(kGrowth, heap.used / 4);
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
    if (!rule.is_due(heap_bytes())) return;
    ::malloc_trim(0);
    rule.trimmed(heap_bytes());
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
