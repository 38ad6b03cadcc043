#pragma once
// As where every process and thread is taken: none can be started while this is here.

#include <pthread.h>

#include <cstddef>

#include "common/base/assert.hpp"

namespace sgd::test {

class NoThreads {
 public:
  NoThreads() {
    SGD_ASSERT(::pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge;
    SGD_ASSERT(::pthread_attr_init(&huge) == 0);
    // A stack of more than the addresses that a process has: EAGAIN, as where there is no room for a thread.
    SGD_ASSERT(::pthread_attr_setstacksize(&huge, std::size_t{1} << 48) == 0);
    SGD_ASSERT(::pthread_setattr_default_np(&huge) == 0);
    (void)::pthread_attr_destroy(&huge);
  }
  ~NoThreads() { SGD_ASSERT(::pthread_setattr_default_np(&before_) == 0); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace sgd::test
