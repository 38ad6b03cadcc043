#pragma once
// What a user may leave open in a text, such as "${local_rank}", is filled in.

#include <string>
#include <string_view>

namespace sgd {

/// Every `what` in `text` becomes `with`; one that `with` brings along stays.
inline void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

}  // namespace sgd
