#include "launcher/process/library_folders.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

/// Of a table of the file: a program header, the dynamic section, the names of its libraries.
constexpr std::size_t kElfTableBytesMax = 1 << 20;

/// Reads whole or not at all.
bool read_at(int file, std::uint64_t offset, void* into, std::size_t size) {
  return ::pread(file, into, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

template <typename T>
std::vector<T> read_table(int file, std::uint64_t offset, std::uint64_t size) {
  if (size > kElfTableBytesMax) return {};
  std::vector<T> table(size / sizeof(T));
  if (!read_at(file, offset, table.data(), table.size() * sizeof(T))) table.clear();
  return table;
}

/// Where in the file lies what the program sees at an address.
std::optional<std::uint64_t> place_of(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return std::nullopt;
}

/// The text of DT_RUNPATH, or of DT_RPATH.
std::string search_text(int file) {
  Elf64_Ehdr header;
  if (!read_at(file, 0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return {};
  const auto segments =
      read_table<Elf64_Phdr>(file, header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  std::vector<Elf64_Dyn> dynamic;
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_DYNAMIC) dynamic = read_table<Elf64_Dyn>(file, segment.p_offset, segment.p_filesz);
  std::uint64_t names_at = 0;
  std::uint64_t names_size = 0;
  std::optional<std::uint64_t> path;
  for (const Elf64_Dyn& entry : dynamic) {
    if (entry.d_tag == DT_STRTAB) names_at = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) names_size = entry.d_un.d_val;
    if (entry.d_tag == DT_RUNPATH || (entry.d_tag == DT_RPATH && !path)) path = entry.d_un.d_val;
  }
  const auto names_offset = place_of(segments, names_at);
  if (!path || !names_offset) return {};
  const auto names = read_table<char>(file, *names_offset, names_size);
  if (*path >= names.size()) return {};
  return std::string(names.data() + *path, ::strnlen(names.data() + *path, names.size() - *path));
}

/// The first folder on the way that this account cannot pass.
std::string closed_above(const std::filesystem::path& folder) {
  std::filesystem::path way;
  for (const auto& part : folder) {
    way /= part;
    if (::access(way.c_str(), X_OK) != 0 && errno == EACCES) return way.string();
  }
  return folder.string();
}

}  // namespace

std::vector<std::string> library_folders(const std::string& program) {
  const UniqueFd file(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::vector<std::string> folders;
  const std::string text = search_text(file.get());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    std::string folder = text.substr(begin, end - begin);
    constexpr std::string_view kOrigin = "$ORIGIN";
    if (folder.starts_with(kOrigin)) {
      const std::filesystem::path here = std::filesystem::path(program).parent_path();
      folder = std::filesystem::path(here.string() + folder.substr(kOrigin.size())).lexically_normal().string();
    }
    if (folder.starts_with('/')) folders.push_back(std::move(folder));
    begin = end + 1;
  }
  return folders;
}

Status check_library_folders(const std::string& program) {
  Status refused;
  for (const std::string& folder : library_folders(program)) {
    if (::access(folder.c_str(), R_OK | X_OK) == 0) return {};
    const int code = errno;
    const std::string text = fmt::format("{} is linked with libraries in {}", program, folder);
    // One that is closed says more than one that is not there.
    if (code == EACCES && (refused.ok() || refused.error().code != EACCES))
      refused = Error{fmt::format("{}, and this account cannot open {}", text, closed_above(folder)), EACCES};
    else if (refused.ok())
      refused = Error{fmt::format("{}: {}", text, std::strerror(code)), code};
  }
  return refused;
}

}  // namespace sgd::process
