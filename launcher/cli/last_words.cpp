#include "launcher/cli/last_words.hpp"

#include <filesystem>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <boost/system/system_error.hpp>

namespace sgd::cli {
namespace {

std::string place_of(const std::filesystem::filesystem_error& error) {
  std::string place = error.path1().string();
  if (!error.path2().empty()) place += (place.empty() ? "" : ", ") + error.path2().string();
  return place.empty() ? "a file" : place;
}

}  // namespace

std::string last_words(const std::string& verb, const std::exception_ptr& error, bool with_details) {
  const std::string what = verb.empty() ? "sgd-launch" : "sgd-launch " + verb;
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return what + " ended: not enough memory";
  } catch (const std::filesystem::filesystem_error& refused) {
    return fmt::format("{} ended: {}: {}", what, place_of(refused), refused.code().message());
  } catch (const boost::system::system_error& refused) {
    return fmt::format("{} ended: {}", what, refused.code().message());
  } catch (const std::system_error& refused) {
    return fmt::format("{} ended: {}", what, refused.code().message());
  } catch (const std::exception& other) {
    std::string text = what + " ended by an internal error, which is not your mistake; SGD_DETAILS=1 shows its details";
    if (with_details) text += std::string("\n  details: ") + other.what();
    return text;
  }
}

}  // namespace sgd::cli
