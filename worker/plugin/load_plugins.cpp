#include "worker/plugin/load_plugins.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sgd/abi.hpp"
#include "worker/plugin/registered.hpp"

namespace sgd::worker {
namespace {

constexpr std::string_view kMark = "sgd-plugin-abi: ";
constexpr std::string_view kElf = "\177ELF";
constexpr std::size_t kTagBytesMax = 256;

std::string without_mark(std::string_view tag) {
  return std::string(tag.substr(kMark.size()));
}

Status load(const std::string& path) {
  const Result<std::string> abi = plugin_abi(path);
  if (!abi) return abi.error();
  if (abi.value() != without_mark(SGD_PLUGIN_ABI))
    return Error{
        fmt::format("the plug-in {} was built for {}, this worker is {}: build it again with this worker's headers",
                    path, abi.value(), without_mark(SGD_PLUGIN_ABI))};
  RegisteredTypes& types = registered_types();
  types.faults.clear();
  try {
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr)
      return Error{fmt::format("the plug-in {} cannot be loaded: {}", path, ::dlerror())};
  } catch (const std::exception& error) {
    return Error{fmt::format("the plug-in {} throws while it is loaded: {}", path, error.what())};
  }
  if (types.faults.empty()) return {};
  return Error{fmt::format("the plug-in {} registers wrongly: {}", path, fmt::join(types.faults, "; "))};
}

}  // namespace

Result<std::string> plugin_abi(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Error{fmt::format(
        "the plug-in {} {}", path,
        std::filesystem::exists(path, error) ? "is no file" : "is not there: build it (cmake --build build)")};
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && bytes.empty()) return Error{fmt::format("the plug-in {} cannot be read", path)};
  if (!bytes.starts_with(kElf)) return Error{fmt::format("the plug-in {} is no library", path)};
  const std::size_t begin = bytes.find(kMark);
  const std::size_t end = begin == std::string::npos ? begin : bytes.find('\0', begin);
  if (end == std::string::npos || end - begin > kTagBytesMax)
    return Error{fmt::format("the library {} is no plug-in: it registers nothing (see <sgd/registry.hpp>)", path)};
  return without_mark(std::string_view(bytes).substr(begin, end - begin));
}

Status load_plugins(const std::vector<std::string>& paths) {
  static std::vector<std::string> loaded;
  for (const std::string& path : paths) {
    if (std::find(loaded.begin(), loaded.end(), path) != loaded.end()) continue;
    if (Status status = load(path); !status) return status;
    loaded.push_back(path);
  }
  return {};
}

}  // namespace sgd::worker
