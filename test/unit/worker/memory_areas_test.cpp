// Where an area fits beside others, and that its memory comes and goes.
#include "worker/core/memory_areas.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "test/unit/worker/rank_processes.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint64_t kPage = 4096;

FileArea pages(std::uint64_t begin, std::uint64_t count) {
  return {begin * kPage, count * kPage};
}

std::uint64_t pages_of(const testing::Memory& memory) {
  struct stat info {};
  REQUIRE(::fstat(memory.fd(), &info) == 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512 / kPage;
}

}  // namespace

TEST_CASE("memory areas: the first place that touches nothing") {
  struct Row {
    std::uint64_t count;
    std::vector<FileArea> taken;
    std::uint64_t begin;
  };
  const Row rows[] = {
      {4, {}, 10},
      {4, {pages(10, 0), pages(10, 0)}, 10},
      {4, {pages(10, 2), pages(12, 2)}, 14},
      {4, {pages(12, 2), pages(10, 2)}, 14},
      {4, {pages(14, 2), pages(30, 9)}, 10},  // Just fits.
      {5, {pages(14, 2), pages(30, 9)}, 16},
      {5, {pages(14, 16), pages(33, 2)}, 35},
      {4, {pages(10, 8), pages(12, 2)}, 18},  // Of two that touch, as only damage makes them.
  };
  for (const Row& row : rows) {
    CAPTURE(row.count, row.begin);
    const FileArea place = place_beside(10 * kPage, row.count * kPage, row.taken);
    CHECK(place == pages(row.begin, row.count));
    for (const FileArea& other : row.taken) CHECK_FALSE(place.touches(other));
  }
}

TEST_CASE("memory areas: one is one word") {
  for (const FileArea& area :
       {pages(0, 0), pages(3, 16), pages((std::uint64_t{1} << 32) - 1, 1), pages(1, (std::uint64_t{1} << 32) - 1)}) {
    CHECK(area_of(word_of(area)) == area);
  }
}

TEST_CASE("memory areas: memory comes, stays where it is kept, and goes") {
  const testing::Memory memory;
  REQUIRE(take_memory(memory.fd(), pages(2, 4)).ok());
  CHECK(pages_of(memory) == 4);
  REQUIRE(::pwrite(memory.fd(), "kept", 4, 3 * kPage) == 4);
  REQUIRE(take_memory(memory.fd(), pages(0, 20)).ok());
  CHECK(pages_of(memory) == 20);
  give_back_memory(memory.fd(), pages(4, 0));
  CHECK(pages_of(memory) == 20);
  const FileArea kept[] = {pages(15, 2), pages(3, 2)};
  give_back_all_but(memory.fd(), kPage, kept);
  CHECK(pages_of(memory) == 1 + 4);
  char text[4];
  REQUIRE(::pread(memory.fd(), text, 4, 3 * kPage) == 4);
  CHECK(std::string(text, 4) == "kept");
  const FileArea beyond[] = {pages(15, 2), pages(40, 7)};
  give_back_all_but(memory.fd(), kPage, beyond);
  CHECK(pages_of(memory) == 1 + 2);
}

}  // namespace sgd::worker
