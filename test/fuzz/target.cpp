#include "test/fuzz/target.hpp"

#include <cstdio>
#include <cstdlib>

extern "C" {
// A sanitizer that goes on after an error would hide it from a fuzzer.
const char* __ubsan_default_options() {
  return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}
const char* __asan_default_options() {
  return "abort_on_error=1:allocator_may_return_null=0:detect_leaks=1";
}
// Of sanitizer/allocator_interface.h; absent without a sanitizer.
int __attribute__((weak))
__sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                          void (*on_free)(const volatile void*));
std::size_t __attribute__((weak)) __sanitizer_get_allocated_size(const volatile void* address);
}

namespace sgd::fuzz {
namespace {

bool is_counting = false;
std::size_t held = 0;  ///< More than before; an input may free what was there before it, for example a cache.
std::size_t limit = 0;

void on_malloc(const volatile void*, std::size_t bytes) {
  if (!is_counting) return;
  held += bytes;
  if (held > limit) {
    is_counting = false;
    std::fprintf(stderr, "memory: %zu bytes held, the input allows %zu\n", held, limit);
    fail("memory in proportion to the input", __FILE__, __LINE__);
  }
}

void on_free(const volatile void* address) {
  if (!is_counting || address == nullptr) return;
  const std::size_t bytes = __sanitizer_get_allocated_size(address);
  held -= bytes < held ? bytes : held;
}

}  // namespace

void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, what);
  std::abort();
}

MemoryBound::MemoryBound(std::size_t input_bytes, std::size_t factor, std::size_t fixed) {
  static const bool is_installed = __sanitizer_install_malloc_and_free_hooks != nullptr &&
                                   __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
  held = 0;
  limit = fixed + factor * input_bytes;
  is_counting = is_installed;
}

MemoryBound::~MemoryBound() {
  is_counting = false;
}

}  // namespace sgd::fuzz
