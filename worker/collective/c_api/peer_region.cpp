#include "worker/collective/c_api/peer_region.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "worker/collective/collective.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSlotsPerRank = 4;

struct Stamp {
  std::atomic<std::uint64_t> token;  ///< Which group's file this is.
  std::uint32_t layout;              ///< Of which version of this library.
  std::uint32_t size;
};
constexpr std::uint32_t kLayout = 3;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "The words are shared by processes.");
static_assert(64 + sizeof(PeerBarrierWords) <= kPageBytes);

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
std::size_t header_bytes(int size) {
  return kPageBytes + whole_pages(static_cast<std::size_t>(size) * sizeof(PeerLine));
}
std::size_t region_bytes(int size) {
  if (size < 1 || size > kPeersMax)
    throw CollectiveError("a group of " + std::to_string(size) + " ranks on one host: 1 to " +
                          std::to_string(kPeersMax) + " can share memory");
  return header_bytes(size) + static_cast<std::size_t>(size) * kSlotsPerRank * kSlotBytes;
}

[[noreturn]] void throw_system(const std::string& what) {
  throw CollectiveError(what + ": " + std::strerror(errno));
}

std::byte* map_file(int fd, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw_system("cannot map the group's memory");
  return static_cast<std::byte*>(address);
}

}  // namespace

int PeerRegion::create(int size, std::uint64_t token) {
  const std::size_t bytes = region_bytes(size);
  const int fd = ::memfd_create("sgd-collective", MFD_CLOEXEC);
  if (fd < 0) throw_system("cannot create the group's memory");
  try {
    if (::fchmod(fd, 0600) != 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
      throw_system("cannot give the group's memory " + std::to_string(bytes) + " bytes");
    std::byte* const base = map_file(fd, kPageBytes);  // The rest is zeros, which is what it has to be.
    auto* const stamp = new (base) Stamp;
    stamp->layout = kLayout;
    stamp->size = static_cast<std::uint32_t>(size);
    stamp->token.store(token, std::memory_order_release);
    ::munmap(base, kPageBytes);
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

PeerRegion::PeerRegion(int fd, std::uint64_t token, int size) : size_(size), bytes_(region_bytes(size)) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_system("the group's memory");
  // Opened by a process number, which another program may have by now.
  if (info.st_uid != ::geteuid() || static_cast<std::size_t>(info.st_size) != bytes_)
    throw CollectiveError("the descriptor is not the group's memory");
  base_ = map_file(fd, bytes_);
  const auto& stamp = *reinterpret_cast<const Stamp*>(base_);
  if (stamp.token.load(std::memory_order_acquire) != token || stamp.layout != kLayout ||
      stamp.size != static_cast<std::uint32_t>(size)) {
    ::munmap(base_, bytes_);
    throw CollectiveError("the group's memory is that of another group, or of another version of this library");
  }
  (void)::madvise(base_, bytes_, MADV_DONTFORK);  // Ignoring: a child process would only keep the memory for longer.
}

PeerRegion::~PeerRegion() {
  ::munmap(base_, bytes_);
}

PeerBarrierWords& PeerRegion::words() {
  return *reinterpret_cast<PeerBarrierWords*>(base_ + 64);
}

PeerLine& PeerRegion::line(int rank) {
  return *reinterpret_cast<PeerLine*>(base_ + kPageBytes + static_cast<std::size_t>(rank) * sizeof(PeerLine));
}

std::byte* PeerRegion::slot(int rank, std::size_t index) {
  return base_ + header_bytes(size_) + (static_cast<std::size_t>(rank) * kSlotsPerRank + index) * kSlotBytes;
}

std::byte* PeerRegion::given(int rank, std::size_t parity) {
  return slot(rank, parity);
}

std::byte* PeerRegion::reduced(int rank, std::size_t parity) {
  return slot(rank, 2 + parity);
}

}  // namespace sgd::worker
