// Where a program looks for its libraries, as its file says, whatever else the file may be.

#include "launcher/process/library_folders.hpp"

#include <elf.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"

using namespace sgd;

namespace {

/// A program of nothing but its headers, linked with libraries in the folders of `path`.
std::string program_of(const std::string& path) {
  const std::string names = std::string(1, '\0') + path + std::string(1, '\0');
  struct {
    Elf64_Ehdr header{};
    Elf64_Phdr segments[2]{};
    Elf64_Dyn dynamic[4]{};
  } file;
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_phoff = sizeof(Elf64_Ehdr);
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_phnum = 2;
  constexpr std::uint64_t kAddress = 0x10000;
  file.segments[0] = {PT_LOAD, 0, 0, kAddress, 0, sizeof(file) + names.size(), sizeof(file) + names.size(), 0};
  const auto dynamic_at =
      static_cast<std::uint64_t>(reinterpret_cast<char*>(file.dynamic) - reinterpret_cast<char*>(&file));
  file.segments[1] = {PT_DYNAMIC, 0, dynamic_at, 0, 0, sizeof(file.dynamic), 0, 0};
  file.dynamic[0] = {DT_STRTAB, {kAddress + sizeof(file)}};
  file.dynamic[1] = {DT_STRSZ, {names.size()}};
  file.dynamic[2] = {DT_RUNPATH, {1}};
  return std::string(reinterpret_cast<const char*>(&file), sizeof(file)) + names;
}

}  // namespace

TEST_CASE("library folders: those that a program names, and the one that is not there is said") {
  keeper_test::TemporaryDir folder;
  const auto write = [&](const std::string& bytes) {
    std::ofstream(folder.file("program"), std::ios::binary) << bytes;
    return folder.file("program");
  };
  const std::string here = folder.file("lib");
  const std::string several = write(program_of("$ORIGIN/../lib:/usr:" + here));
  const std::string beside = std::filesystem::path(folder.file("../lib")).lexically_normal().string();
  CHECK(process::library_folders(several) == std::vector<std::string>{beside, "/usr", here});
  CHECK(process::check_library_folders(several).ok());  // One is enough.
  const std::string program = write(program_of(here + ":/nowhere"));
  const Status missing = process::check_library_folders(program);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ENOENT);
  CHECK_THAT(missing.error().message, Catch::Contains(program + " is linked with libraries in " + here));
  CHECK(process::check_library_folders(write(program_of("/usr"))).ok());
  CHECK(process::check_library_folders(write("#!/bin/sh\n")).ok());
  CHECK(process::check_library_folders(folder.file("nothing")).ok());
}

TEST_CASE("library folders: a file that ends anywhere names none, or all; limit kElfTableBytesMax") {
  keeper_test::TemporaryDir folder;
  std::string whole = program_of("/usr");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(folder.file("program"), std::ios::binary) << whole.substr(0, size);
    CHECK(process::library_folders(folder.file("program")).empty());
  }
  // A table of more than a megabyte is not read.
  reinterpret_cast<Elf64_Phdr*>(whole.data() + sizeof(Elf64_Ehdr))[1].p_filesz = std::uint64_t{1} << 60;
  std::ofstream(folder.file("program"), std::ios::binary) << whole;
  CHECK(process::library_folders(folder.file("program")).empty());
}
