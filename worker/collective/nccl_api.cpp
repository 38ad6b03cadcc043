#include "worker/collective/nccl_api.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "worker/collective/factory.hpp"

namespace sgd::worker {
namespace {

constexpr const char* kBlockingVariable = "NCCL_COMM_BLOCKING";

std::string how_to_get() {
  return fmt::format("install LibTorch's CUDA part with scripts/setup --cuda, or name a library by {}", kNcclVariable);
}

template <class Function>
void take(void* library, const std::string& path, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr)
    throw CollectiveSetupError(fmt::format("{} has no function {}, which NCCL has from {} on: {}", path, name,
                                           nccl_version_text(kNcclVersionMin), how_to_get()));
}

}  // namespace

std::string nccl_version_text(int version) {
  // Numbers had one digit for the minor version up to 2.8.
  if (version < 10'000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

NcclApi open_nccl(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw CollectiveSetupError(
        fmt::format("GPUs need NCCL, and it cannot be opened: {}: {}", ::dlerror(), how_to_get()));
  NcclApi api;
  api.path = name;
  // The version first: an old library lacks functions, too, and its number says more.
  take(library, name, "ncclGetVersion", api.get_version);
  if (api.get_version(&api.version) != nccl::kSuccess || api.version < kNcclVersionMin)
    throw CollectiveSetupError(fmt::format("{} is NCCL {}, and {} is the least: {}", name,
                                           nccl_version_text(api.version), nccl_version_text(kNcclVersionMin),
                                           how_to_get()));
  take(library, name, "ncclGetUniqueId", api.get_unique_id);
  take(library, name, "ncclCommInitRankConfig", api.init);
  take(library, name, "ncclCommGetAsyncError", api.async_error);
  take(library, name, "ncclCommAbort", api.abort);
  take(library, name, "ncclAllReduce", api.all_reduce);
  take(library, name, "ncclGetErrorString", api.error_string);
  take(library, name, "ncclGetLastError", api.last_error);
  return api;
}

void keep_nccl_from_waiting() {
  const char* said = std::getenv(kBlockingVariable);
  if (said != nullptr && std::string_view(said) != "0") (void)::setenv(kBlockingVariable, "0", 1);
}

const NcclApi& load_nccl() {
  static const NcclApi api = [] {
    keep_nccl_from_waiting();
    const char* named = std::getenv(kNcclVariable);
    return open_nccl(named != nullptr && named[0] != 0 ? named : kNcclLibrary);
  }();
  return api;
}

}  // namespace sgd::worker
