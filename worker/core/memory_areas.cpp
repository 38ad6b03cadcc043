#include "worker/core/memory_areas.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "common/base/assert.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint64_t kStretchBytes = std::uint64_t{8} << 20;  // A signal makes the system begin a piece anew.
constexpr int kWordHalf = 32;

std::vector<FileArea> sorted(std::span<const FileArea> areas) {
  std::vector<FileArea> ordered(areas.begin(), areas.end());
  std::sort(ordered.begin(), ordered.end(),
            [](const FileArea& one, const FileArea& other) { return one.begin < other.begin; });
  return ordered;
}

}  // namespace

std::uint64_t word_of(const FileArea& area) {
  SGD_ASSERT(area.begin % kPageBytes == 0 && area.bytes % kPageBytes == 0);
  SGD_ASSERT(area.begin / kPageBytes >> kWordHalf == 0 && area.bytes / kPageBytes >> kWordHalf == 0);
  return area.begin / kPageBytes << kWordHalf | area.bytes / kPageBytes;
}

FileArea area_of(std::uint64_t word) {
  return {(word >> kWordHalf) * kPageBytes, static_cast<std::uint32_t>(word) * std::uint64_t{kPageBytes}};
}

FileArea place_beside(std::uint64_t begin, std::uint64_t bytes, std::span<const FileArea> taken) {
  FileArea place{begin, bytes};
  for (const FileArea& other : sorted(taken)) {
    if (place.touches(other)) place.begin = other.end();
  }
  return place;
}

Status take_memory(int fd, const FileArea& area) {
  for (std::uint64_t at = area.begin; at < area.end();) {
    const std::uint64_t bytes = std::min(kStretchBytes, area.end() - at);
    if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0) {
      at += bytes;
    } else if (errno != EINTR) {
      return Error{std::generic_category().message(errno), errno};
    }
  }
  return {};
}

void give_back_memory(int fd, const FileArea& area) {
  if (area.bytes == 0) return;
  // Ignoring every other error: what cannot be given back costs memory and nothing else.
  while (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(area.begin),
                     static_cast<off_t>(area.bytes)) != 0 &&
         errno == EINTR) {
  }
}

void give_back_all_but(int fd, std::uint64_t begin, std::span<const FileArea> kept) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  const auto end = static_cast<std::uint64_t>(info.st_size);
  for (const FileArea& area : sorted(kept)) {
    if (area.begin > begin) give_back_memory(fd, {begin, std::min(area.begin, end) - std::min(begin, end)});
    begin = std::max(begin, area.end());
  }
  if (begin < end) give_back_memory(fd, {begin, end - begin});
}

}  // namespace sgd::worker
