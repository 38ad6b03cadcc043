#include "worker/core/memory_checkpoint.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/checkpoint/crc32c.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {

struct MemoryRegionHeader {
  std::atomic<std::uint64_t> magic;  // Written last.
  std::uint64_t format;
  std::uint64_t slot_bytes;  // Of its parts.
  std::uint64_t layout_digest;
  std::uint64_t layout_parts;
  std::atomic<std::uint64_t> reserved;  // 1: the memfd has all pages of the parts.
  alignas(64) std::atomic<std::int64_t> live_step;
};

struct MemorySlotHeader {
  std::atomic<std::uint64_t> stamp;  // Generation in the upper half, sequence in the lower; 0: empty.
  std::int64_t step;
  std::int64_t consumed;
  std::int32_t epoch;
  std::uint32_t validating;
  std::uint64_t text_bytes;
  std::uint64_t part_bytes;
  std::atomic<std::uint64_t> text_area;  // A word of memory_areas.hpp; changed while the slot is empty.
  std::uint32_t data_crc;                // Of the text, then the parts.
  std::uint32_t header_crc;              // Of the fields above but the stamp, which changes alone.
};

namespace {

constexpr std::uint64_t kMagic = 0x6d656d31'73676430ull;
constexpr std::uint64_t kFormat = 2;
constexpr std::int64_t kNeverLive = -1;
constexpr std::size_t kPartAlignment = 64;
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;   // Summed while it is in the cache, then copied.
constexpr std::size_t kPopulateBytes = std::size_t{8} << 20;  // Between two looks at the cancel flag.
constexpr int kSlots = 2;
constexpr std::uint64_t kAreasBytesMax = (kSlots + 1) * std::uint64_t{MemoryCheckpoint::kTextBytesMax};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "A stamp is one store.");
static_assert(sizeof(MemoryRegionHeader) <= kPageBytes && sizeof(MemorySlotHeader) <= kPageBytes);
static_assert(MemoryCheckpoint::kTextBytesFirst % kPageBytes == 0 && MemoryCheckpoint::kTextBytesMax % kPageBytes == 0);

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t slot_bytes_of(const MemoryLayout& layout) {
  std::size_t bytes = 0;
  for (const std::size_t part : layout.part_bytes) {
    SGD_ASSERT(part < std::numeric_limits<std::size_t>::max() / 8 - bytes);
    bytes += rounded(part, kPartAlignment);
  }
  return rounded(bytes, kPageBytes);
}

std::size_t region_bytes_of(const MemoryLayout& layout) {
  return (1 + kSlots) * kPageBytes + kSlots * slot_bytes_of(layout);
}

std::uint64_t sizes_digest(const MemoryLayout& layout) {
  const auto bytes = std::as_bytes(std::span(layout.part_bytes));
  return (std::uint64_t{checkpoint::crc32c(0, bytes)} << 32) | layout.part_bytes.size();
}

std::uint32_t header_crc_of(const MemorySlotHeader& header) {
  const auto* begin = reinterpret_cast<const std::byte*>(&header.step);
  const auto* end = reinterpret_cast<const std::byte*>(&header.header_crc);
  return checkpoint::crc32c(0, {begin, end});
}

std::uint64_t stamp_of(Generation generation, std::uint32_t sequence) {
  SGD_ASSERT(generation <= std::numeric_limits<std::uint32_t>::max());
  return generation << 32 | sequence;
}

/// Copies, and returns the sum of what `crc` was the sum of, followed by these bytes: one pass over memory.
std::uint32_t copy_and_sum(std::byte* to, std::span<const std::byte> from, std::uint32_t crc) {
  while (!from.empty()) {
    const auto piece = from.first(std::min(from.size(), kPieceBytes));
    crc = checkpoint::crc32c(crc, piece);
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
    from = from.subspan(piece.size());
  }
  return crc;
}

/// Copies out of the file, and sums as copy_and_sum() does. By the system, not by the mapping: its pages would be
/// mapped for one pass, and be unmapped when this process ends, which its successor waits for.
Result<std::uint32_t> read_and_sum(int fd, std::size_t at, std::span<std::byte> to, std::uint32_t crc) {
  while (!to.empty()) {
    const ssize_t count = ::pread(fd, to.data(), std::min(to.size(), kPieceBytes), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("it cannot be read");
    if (count == 0) return Error{"it is cut off"};
    const auto piece = to.first(static_cast<std::size_t>(count));
    crc = checkpoint::crc32c(crc, piece);
    at += piece.size();
    to = to.subspan(piece.size());
  }
  return crc;
}

/// Writes into the file by the system: an area needs no mapping of its own, and a page that is missing is an error.
Status write_at(int fd, std::size_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("the text of a memory checkpoint cannot be written");
    at += static_cast<std::size_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::byte*> map_region(int fd, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return system_error("cannot map the memory checkpoint");
  return static_cast<std::byte*>(address);
}

}  // namespace

Result<std::unique_ptr<MemoryCheckpoint>> MemoryCheckpoint::attach(int fd, const MemoryLayout& layout) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("memory checkpoint");
  const std::size_t bytes = region_bytes_of(layout);
  if (static_cast<std::size_t>(info.st_size) < bytes) return std::unique_ptr<MemoryCheckpoint>();
  Result<std::byte*> base = map_region(fd, bytes);
  if (!base) return base.error();
  std::unique_ptr<MemoryCheckpoint> region(new MemoryCheckpoint(fd, base.value(), layout));
  const MemoryRegionHeader& header = region->header();
  const bool same = header.magic.load(std::memory_order_acquire) == kMagic && header.format == kFormat &&
                    header.slot_bytes == slot_bytes_of(layout) && header.layout_digest == layout.digest &&
                    header.layout_parts == sizes_digest(layout);
  if (!same) region.reset();
  return region;
}

Result<std::unique_ptr<MemoryCheckpoint>> MemoryCheckpoint::create(int fd, const MemoryLayout& layout) {
  const std::size_t bytes = region_bytes_of(layout);
  const std::size_t all = bytes + kSlots * kTextBytesFirst;
  // Through zero, so that no stamp of another layout is left anywhere.
  if (::ftruncate(fd, 0) != 0 || ::ftruncate(fd, static_cast<off_t>(all)) != 0)
    return system_error(fmt::format("cannot give the memory checkpoint {} bytes", all));
  Result<std::byte*> base = map_region(fd, bytes);
  if (!base) return base.error();
  std::unique_ptr<MemoryCheckpoint> region(new MemoryCheckpoint(fd, base.value(), layout));
  MemoryRegionHeader& header = region->header();
  header.format = kFormat;
  header.slot_bytes = slot_bytes_of(layout);
  header.layout_digest = layout.digest;
  header.layout_parts = sizes_digest(layout);
  header.reserved.store(0);
  header.live_step.store(kNeverLive);
  for (int index = 0; index < kSlots; ++index) {
    const std::uint64_t begin = bytes + static_cast<std::uint64_t>(index) * kTextBytesFirst;
    region->slot_header(index).text_area.store(word_of({begin, kTextBytesFirst}));
  }
  header.magic.store(kMagic, std::memory_order_release);
  return region;
}

MemoryCheckpoint::MemoryCheckpoint(int fd, std::byte* base, MemoryLayout layout)
    : fd_(fd), base_(base), layout_(std::move(layout)), bytes_(region_bytes_of(layout_)) {}

MemoryCheckpoint::~MemoryCheckpoint() {
  ::munmap(base_, bytes_);
}

MemoryRegionHeader& MemoryCheckpoint::header() const {
  return *reinterpret_cast<MemoryRegionHeader*>(base_);
}

MemorySlotHeader& MemoryCheckpoint::slot_header(int index) const {
  SGD_ASSERT(index >= 0 && index < kSlots);
  return *reinterpret_cast<MemorySlotHeader*>(base_ + (1 + static_cast<std::size_t>(index)) * kPageBytes);
}

std::size_t MemoryCheckpoint::parts_begin(int index) const {
  return (1 + kSlots) * kPageBytes + static_cast<std::size_t>(index) * slot_bytes_of(layout_);
}

/// Empty where the word is damaged: what lies before the areas is never written as one.
FileArea MemoryCheckpoint::text_area(int index) const {
  const FileArea area = area_of(slot_header(index).text_area.load(std::memory_order_acquire));
  const bool is_possible = area.begin >= bytes_ && area.bytes <= kTextBytesMax && area.end() <= bytes_ + kAreasBytesMax;
  return is_possible ? area : FileArea{bytes_, 0};
}

std::size_t MemoryCheckpoint::part_bytes() const {
  std::size_t bytes = 0;
  for (const std::size_t part : layout_.part_bytes) bytes += part;
  return bytes;
}

std::optional<MemorySlot> MemoryCheckpoint::slot(int index) const {
  const MemorySlotHeader& slot = slot_header(index);
  const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
  if (stamp == 0) return std::nullopt;
  MemorySlot found;
  found.index = index;
  found.generation = stamp >> 32;
  found.sequence = static_cast<std::uint32_t>(stamp);
  found.point = {slot.step, slot.epoch, slot.validating != 0, slot.consumed};
  return found;
}

std::optional<MemorySlot> MemoryCheckpoint::newest() const {
  return slot(slot_header(1).stamp.load() > slot_header(0).stamp.load() ? 1 : 0);
}

Result<std::string> MemoryCheckpoint::read(int index, std::span<const std::span<std::byte>> parts) const {
  SGD_ASSERT(parts.size() == layout_.part_bytes.size());
  const MemorySlotHeader& slot = slot_header(index);
  const FileArea area = text_area(index);
  if (slot.header_crc != header_crc_of(slot) || slot.text_bytes > area.bytes || slot.part_bytes != part_bytes())
    return Error{"its header is damaged"};
  std::string text(slot.text_bytes, '\0');
  Result<std::uint32_t> crc = read_and_sum(fd_, area.begin, std::as_writable_bytes(std::span(text)), 0);
  std::size_t at = parts_begin(index);
  for (std::size_t i = 0; i < parts.size() && crc; ++i) {
    SGD_ASSERT(parts[i].size() == layout_.part_bytes[i]);
    crc = read_and_sum(fd_, at, parts[i], crc.value());
    at += rounded(parts[i].size(), kPartAlignment);
  }
  if (!crc) return crc.error();
  if (crc.value() == slot.data_crc) return text;
  return Error{fmt::format("its CRC-32C is {:08x}, its header says {:08x}", crc.value(), slot.data_crc)};
}

void MemoryCheckpoint::discard(int index) {
  slot_header(index).stamp.store(0);
}

/// An area for so long a text, with all its memory; nothing that is there is touched.
Result<FileArea> MemoryCheckpoint::make_room(int index, std::size_t text_bytes) const {
  if (text_bytes > kTextBytesMax)
    return Error{fmt::format("the state beside the tensors has {} bytes, a memory checkpoint takes {}", text_bytes,
                             kTextBytesMax)};
  const FileArea areas[kSlots] = {text_area(0), text_area(1)};
  std::size_t bytes = std::max<std::size_t>(areas[index].bytes, kTextBytesFirst);
  while (bytes < text_bytes) bytes *= 2;
  const FileArea place = place_beside(bytes_, std::min(bytes, kTextBytesMax), areas);
  const Status taken = take_memory(fd_, place);
  if (taken) return place;
  give_back_memory(fd_, place);
  return Error{fmt::format("the state beside the tensors has {} bytes, and {} bytes of memory for it cannot be had: {}",
                           text_bytes, place.bytes, taken.error().message),
               taken.error().code};
}

/// Returns the checksum of what it has written.
Result<std::uint32_t> MemoryCheckpoint::write_text(std::size_t at, std::span<const std::string_view> text) const {
  std::uint32_t crc = 0;
  for (const std::string_view one : text) {
    auto rest = std::as_bytes(std::span(one));
    while (!rest.empty()) {
      const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
      crc = checkpoint::crc32c(crc, piece);
      if (Status written = write_at(fd_, at, piece); !written) return written.error();
      at += piece.size();
      rest = rest.subspan(piece.size());
    }
  }
  return crc;
}

Status MemoryCheckpoint::commit(Generation generation, const MemoryPoint& point, std::span<const std::string_view> text,
                                std::span<const std::span<const std::byte>> parts) {
  const auto fits = [](std::span<const std::byte> part, std::size_t bytes) { return part.size() == bytes; };
  if (!std::equal(parts.begin(), parts.end(), layout_.part_bytes.begin(), layout_.part_bytes.end(), fits))
    return Error{"the model's buffers have changed their sizes"};
  std::size_t text_bytes = 0;
  for (const std::string_view piece : text) text_bytes += piece.size();
  const std::uint64_t stamps[kSlots] = {slot_header(0).stamp.load(), slot_header(1).stamp.load()};
  const int index = stamps[1] < stamps[0] ? 1 : 0;
  const auto sequence = std::max(static_cast<std::uint32_t>(stamps[0]), static_cast<std::uint32_t>(stamps[1])) + 1;
  MemorySlotHeader& slot = slot_header(index);
  const FileArea before = text_area(index);
  FileArea area = before;
  if (text_bytes > area.bytes || area.touches(text_area(1 - index))) {
    Result<FileArea> room = make_room(index, text_bytes);
    if (!room) return room.error();
    area = room.value();
  }
  slot.stamp.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // Nothing below is written before the stamp is gone.
  if (area != before) {
    slot.text_area.store(word_of(area));
    if (!before.touches(text_area(1 - index))) give_back_memory(fd_, before);
  }
  Result<std::uint32_t> crc = write_text(area.begin, text);
  if (!crc) return crc.error();
  std::uint32_t sum = crc.value();
  std::byte* at = base_ + parts_begin(index);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sum = copy_and_sum(at, parts[i], sum);
    at += rounded(parts[i].size(), kPartAlignment);
  }
  slot.step = point.step;
  slot.consumed = point.consumed;
  slot.epoch = point.epoch;
  slot.validating = point.validating ? 1 : 0;
  slot.text_bytes = text_bytes;
  slot.part_bytes = part_bytes();
  slot.data_crc = sum;
  slot.header_crc = header_crc_of(slot);
  slot.stamp.store(stamp_of(generation, sequence), std::memory_order_release);
  return {};
}

void MemoryCheckpoint::restamp(int index, Generation generation) {
  std::atomic<std::uint64_t>& stamp = slot_header(index).stamp;
  SGD_ASSERT(stamp.load() != 0);
  stamp.store(stamp_of(generation, static_cast<std::uint32_t>(stamp.load())), std::memory_order_release);
}

Status MemoryCheckpoint::populate(const std::atomic<bool>& cancelled) {
  const FileArea areas[kSlots] = {text_area(0), text_area(1)};
  give_back_all_but(fd_, bytes_, areas);
  const bool reserved = header().reserved.load() != 0;
  // A page that cannot be had is an error here; at a write into the mapping it would be a SIGBUS.
  const auto take = [this, reserved](const FileArea& area) -> Status {
    const Status taken = reserved ? Status() : take_memory(fd_, area);
    if (taken) return {};
    return Error{fmt::format("cannot reserve {} bytes of memory: {}", bytes_, taken.error().message)};
  };
  for (std::size_t at = 0; at < bytes_; at += kPopulateBytes) {
    if (cancelled.load()) return {};
    const FileArea piece{at, std::min(kPopulateBytes, bytes_ - at)};
    if (Status taken = take(piece); !taken) return taken;
    populate_pages({base_ + piece.begin, piece.bytes});
  }
  for (const FileArea& area : areas) {
    if (Status taken = take(area); !taken) return taken;
  }
  header().reserved.store(1);
  return {};
}

std::optional<std::int64_t> MemoryCheckpoint::live_step() const {
  const std::int64_t step = header().live_step.load(std::memory_order_relaxed);
  if (step == kNeverLive) return std::nullopt;
  return step;
}

void MemoryCheckpoint::set_live_step(std::int64_t step) {
  header().live_step.store(step, std::memory_order_relaxed);
}

}  // namespace sgd::worker
