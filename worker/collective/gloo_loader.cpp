#include "worker/collective/gloo_loader.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "worker/collective/factory.hpp"

namespace sgd::worker {
namespace {

// The module must find Debian's gloo:: symbols in itself before those that LibTorch exports.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;  // Sanitizers refuse RTLD_DEEPBIND.
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

std::vector<std::filesystem::path> module_paths() {
  const char* directory = std::getenv("SGD_MODULE_DIR");
  if (directory != nullptr && directory[0] != 0) return {std::filesystem::path(directory) / kGlooModuleFile};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path lib = program.parent_path().parent_path() / "lib";
  return {lib / kGlooModuleFile, lib / "sgd-launch" / kGlooModuleFile};
}

const SgdGlooApi& open_module() {
  std::string looked;
  for (const std::filesystem::path& path : module_paths()) {
    looked += (looked.empty() ? "" : ", ") + path.string();
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    void* const module = ::dlopen(path.c_str(), kOpenFlags);
    if (module == nullptr) {
      throw CollectiveSetupError(fmt::format("cannot open the Gloo module: {}; is libgloo0 installed?", ::dlerror()));
    }
    const auto entry = reinterpret_cast<const SgdGlooApi* (*)()>(::dlsym(module, kGlooEntryPoint));
    if (entry == nullptr || entry()->version != kGlooAbiVersion) {
      throw CollectiveSetupError(path.string() +
                                 ": a Gloo module of another version; install one that fits sgd-worker");
    }
    return *entry();
  }
  throw CollectiveSetupError(
      fmt::format("training on several hosts needs the Gloo module, and {} does not exist (looked for {}): "
                  "install libgloo-dev "
                  "and build again, or set SGD_MODULE_DIR to its directory",
                  kGlooModuleFile, looked));
}

}  // namespace

const SgdGlooApi& load_gloo() {
  static const SgdGlooApi& api = open_module();
  return api;
}

}  // namespace sgd::worker
