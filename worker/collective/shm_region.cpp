#include "worker/collective/shm_region.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/base/result.hpp"
#include "worker/collective/factory.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint64_t kRegionMagic = 0x31676572'64677331ull;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "The words are shared by processes.");
static_assert(sizeof(RegionIdentity) + sizeof(BarrierWords) <= kPageBytes);

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
std::size_t header_bytes(int ranks) {
  return kPageBytes + whole_pages(static_cast<std::size_t>(ranks) * sizeof(RankLine));
}
std::size_t gradient_bytes(std::size_t count) {
  return whole_pages(count * sizeof(float));
}

std::byte* map_region(int fd, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw CollectiveSetupError(system_error("cannot map the shared region").message);
  return static_cast<std::byte*>(address);
}

}  // namespace

std::size_t ShmRegion::bytes(int local_world_size, std::size_t gradient_count) {
  SGD_ASSERT(local_world_size > 0);
  if (local_world_size > kLocalRanksMax)
    throw CollectiveSetupError(
        fmt::format("{} ranks of one run on one host, and at most {} can share its memory: use fewer workers, or more "
                    "hosts (placement.max_per_node)",
                    local_world_size, kLocalRanksMax));
  SGD_ASSERT(gradient_count < std::numeric_limits<std::size_t>::max() / sizeof(float) / kLocalRanksMax / 2);
  const auto ranks = static_cast<std::size_t>(local_world_size);
  return header_bytes(local_world_size) + ranks * (kStagingBytes + gradient_bytes(gradient_count));
}

void ShmRegion::prepare(int fd, Generation generation, int local_world_size, std::size_t gradient_count) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw CollectiveSetupError(system_error("shared region").message);
  const std::size_t wanted = bytes(local_world_size, gradient_count);
  // A region that is large enough stays: its pages are there already.
  if (static_cast<std::size_t>(info.st_size) < wanted && ::ftruncate(fd, static_cast<off_t>(wanted)) != 0) {
    Error error = system_error(fmt::format("cannot give the shared region {} bytes", wanted));
    if (error.code == EFBIG) error.message += ": raise the limit on the size of files (ulimit -f)";
    throw CollectiveSetupError(error.message);
  }
  const std::size_t header = header_bytes(local_world_size);
  std::byte* base = map_region(fd, header);
  auto* identity = reinterpret_cast<RegionIdentity*>(base);
  identity->magic.store(0);
  auto* words = new (base + sizeof(RegionIdentity)) BarrierWords;
  words->arrived.store(0);
  words->control.store(0);
  words->epoch.store(0);
  words->result[0].store(0);
  words->result[1].store(0);
  words->sleepers.store(0);
  for (int rank = 0; rank < local_world_size; ++rank) {
    auto* line = new (base + kPageBytes + static_cast<std::size_t>(rank) * sizeof(RankLine)) RankLine;
    line->arrivals.store(0);
    line->message_bytes = 0;
    line->call = {};
  }
  identity->generation = generation;
  identity->gradient_count = gradient_count;
  identity->world_size = static_cast<std::uint32_t>(local_world_size);
  identity->magic.store(kRegionMagic, std::memory_order_release);
  ::munmap(base, header);
}

ShmRegion::ShmRegion(int fd, Generation generation, int local_world_size, std::size_t gradient_count)
    : local_world_size_(local_world_size),
      gradient_count_(gradient_count),
      mapped_bytes_(bytes(local_world_size, gradient_count)) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw CollectiveSetupError(system_error("shared region").message);
  if (static_cast<std::size_t>(info.st_size) < mapped_bytes_) {
    throw CollectiveSetupError(
        fmt::format("the shared region has {} bytes where {} are needed: local rank 0 "
                    "did not prepare it for this model",
                    info.st_size, mapped_bytes_));
  }
  base_ = map_region(fd, mapped_bytes_);
  const auto& identity = *reinterpret_cast<const RegionIdentity*>(base_);
  if (identity.magic.load(std::memory_order_acquire) != kRegionMagic || identity.generation != generation ||
      identity.gradient_count != gradient_count ||
      identity.world_size != static_cast<std::uint32_t>(local_world_size)) {
    const std::string found = fmt::format("generation {}, {} ranks, {} gradients", identity.generation,
                                          identity.world_size, identity.gradient_count);
    ::munmap(base_, mapped_bytes_);
    throw CollectiveSetupError(
        fmt::format("the shared region is prepared for {}, not for generation {}, {} ranks, "
                    "{} gradients",
                    found, generation, local_world_size, gradient_count));
  }
  if (mapped_bytes_ >= kHugePageBytes) (void)::madvise(base_, mapped_bytes_, MADV_HUGEPAGE);  // Only a wish.
}

ShmRegion::~ShmRegion() {
  ::munmap(base_, mapped_bytes_);
}

BarrierWords& ShmRegion::barrier() {
  return *reinterpret_cast<BarrierWords*>(base_ + sizeof(RegionIdentity));
}

RankLine& ShmRegion::line(int rank) {
  return *reinterpret_cast<RankLine*>(base_ + kPageBytes + static_cast<std::size_t>(rank) * sizeof(RankLine));
}

std::span<std::byte> ShmRegion::staging(int rank) {
  return {base_ + header_bytes(local_world_size_) + static_cast<std::size_t>(rank) * kStagingBytes, kStagingBytes};
}

float* ShmRegion::gradients(int rank) {
  const std::size_t staging_end =
      header_bytes(local_world_size_) + static_cast<std::size_t>(local_world_size_) * kStagingBytes;
  return reinterpret_cast<float*>(base_ + staging_end +
                                  static_cast<std::size_t>(rank) * gradient_bytes(gradient_count_));
}

void ShmRegion::populate(int rank) {
  // The system's pages may be larger than ours: the first one may begin in another rank's part, which stays as it is.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(reinterpret_cast<std::byte*>(gradients(rank)) - base_);
  const std::size_t begin = offset / page * page;
  const std::size_t length = offset - begin + gradient_bytes(gradient_count_);
  // Ignoring any other error: before Linux 5.14 pages come by faults.
  if (::madvise(base_ + begin, length, MADV_POPULATE_WRITE) != 0 && errno == EFAULT) throw std::bad_alloc();
}

}  // namespace sgd::worker
