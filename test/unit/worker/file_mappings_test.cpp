// Which file is mapped at an address.
#include <catch2/catch.hpp>

#include <optional>
#include <utility>

#include "test/unit/worker/temporary_directory.hpp"
#include "worker/core/file_mappings.hpp"
#include "worker/core/mapped_file.hpp"

namespace sgd::worker {

TEST_CASE("file mappings: an address has the name of the file that is mapped there, as long as it is") {
  const testing::TemporaryDirectory folder;
  const std::string bytes(5000, 'x');
  testing::write_file(folder.file("one"), bytes);
  testing::write_file(folder.file("two"), bytes);
  std::optional<MappedFile> one = std::move(MappedFile::open(folder.file("one"))).value();
  const MappedFile two = std::move(MappedFile::open(folder.file("two"))).value();
  const std::byte* begin = one->bytes().data();
  REQUIRE(mapping_at(begin) != nullptr);
  CHECK(mapping_at(begin)->path == folder.file("one"));
  CHECK(mapping_at(begin)->size == bytes.size());
  CHECK(mapping_at(begin + bytes.size() - 1) == mapping_at(begin));
  CHECK(mapping_at(begin - 1) != mapping_at(begin));
  REQUIRE(mapping_at(two.bytes().data() + 4999) != nullptr);
  CHECK(mapping_at(two.bytes().data() + 4999)->path == folder.file("two"));
  CHECK(mapping_at(&bytes) == nullptr);
  CHECK(mapping_at(nullptr) == nullptr);
  one.reset();
  CHECK(mapping_at(begin) == nullptr);
}

}  // namespace sgd::worker
