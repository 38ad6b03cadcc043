#include "launcher/cli/last_words.hpp"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/json/nlohmann.hpp"

using namespace sgd;

namespace {

template <class Error>
std::string said(Error error, bool with_details = false) {
  return cli::last_words("status", std::make_exception_ptr(std::move(error)), with_details);
}

}  // namespace

TEST_CASE("an exception that nothing took is told in words, without those of its library") {
  const auto full = std::make_error_code(std::errc::no_space_on_device);
  CHECK(said(std::bad_alloc()) == "sgd-launch status ended: not enough memory");
  CHECK(said(std::filesystem::filesystem_error("cannot copy", "/a", "/b", full)) ==
        "sgd-launch status ended: /a, /b: No space left on device");
  CHECK(said(std::system_error(full, "write")) == "sgd-launch status ended: No space left on device");
  const std::string other = said(std::out_of_range("basic_string::at"));
  CHECK(other.starts_with("sgd-launch status ended by an internal error"));
  CHECK(other.find("basic_string") == std::string::npos);
  CHECK(said(std::out_of_range("basic_string::at"), true).ends_with("details: basic_string::at"));
}
