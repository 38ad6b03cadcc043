// The module's entry point: wraps a GlooGroup into the C table. Every exception ends here, as a
// code and a text.

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>

#include "worker/collective/gloo_module/abi.hpp"
#include "worker/collective/gloo_module/gloo_group.hpp"

struct SgdGlooGroup final : sgd::worker::GlooGroup {
  using GlooGroup::GlooGroup;
  int size = 0;
};

namespace {

void put(SgdGlooError* error, const char* text) {
  const std::size_t length = std::min(std::strlen(text), sizeof(error->text) - 1);
  std::memcpy(error->text, text, length);
  error->text[length] = 0;
}

template <class Action>
int guarded(SgdGlooError* error, Action action) {
  try {
    action();
    return 0;
  } catch (const std::exception& problem) {
    put(error, problem.what());
  } catch (...) {
    put(error, "unknown exception in Gloo");
  }
  return -1;
}

SgdGlooGroup* create(int rank, int size, const char* bind_address, std::int64_t timeout_ms, SgdGlooError* error) {
  SgdGlooGroup* group = nullptr;
  guarded(error, [&] {
    // Gloo writes to sockets whose peer may be gone; that must be an error code, not the end.
    std::signal(SIGPIPE, SIG_IGN);
    group = new SgdGlooGroup(rank, size, bind_address, std::chrono::milliseconds(timeout_ms));
    group->size = size;
  });
  return group;
}

const char* address(SgdGlooGroup* group) {
  return group->address().c_str();
}

int connect(SgdGlooGroup* group, const char* const* addresses, SgdGlooError* error) {
  return guarded(error, [&] { group->connect(std::vector<std::string>(addresses, addresses + group->size)); });
}

int exchange_headers(SgdGlooGroup* group, const SgdGlooHeader* own, SgdGlooHeader* all, SgdGlooError* error) {
  // Ignoring whether all came for the same: the caller sees it in their headers.
  return guarded(error, [&] { (void)group->exchange_headers(*own, all); });
}

int all_reduce_sum(SgdGlooGroup* group, const SgdGlooHeader* own, SgdGlooHeader* all, float* values, std::size_t count,
                   int* finite, SgdGlooError* error) {
  return guarded(error, [&] { *finite = group->all_reduce_sum(*own, all, values, count) ? 1 : 0; });
}

int broadcast(SgdGlooGroup* group, void* bytes, std::size_t size, int root, SgdGlooError* error) {
  return guarded(error, [&] { group->broadcast(bytes, size, root); });
}

int all_gather(SgdGlooGroup* group, const void* bytes, const std::size_t* sizes, void* out, SgdGlooError* error) {
  return guarded(error, [&] { group->all_gather(bytes, {sizes, sizes + group->size}, out); });
}

void abort_group(SgdGlooGroup* group) {
  group->abort();
}

void destroy(SgdGlooGroup* group) {
  SgdGlooError ignored;  // Nobody is left who could act on it.
  guarded(&ignored, [&] { delete group; });
}

constexpr SgdGlooApi kApi = {sgd::worker::kGlooAbiVersion,
                             create,
                             address,
                             connect,
                             exchange_headers,
                             all_reduce_sum,
                             broadcast,
                             all_gather,
                             abort_group,
                             destroy};

}  // namespace

extern "C" __attribute__((visibility("default"))) const SgdGlooApi* sgd_gloo_api() {
  return &kApi;
}
