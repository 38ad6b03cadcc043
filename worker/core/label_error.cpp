#include "worker/core/label_error.hpp"

#include <fmt/format.h>

namespace sgd::worker {

Error label_error(const std::string& path, std::int64_t label, const char* unit, std::int64_t number,
                  std::int64_t classes) {
  return Error{
      fmt::format("data file {}: label {} of {} {} (the first is 0) is outside 0..{}, what the model gives "
                  "outputs for",
                  path, label, unit, number, classes - 1)};
}

}  // namespace sgd::worker
