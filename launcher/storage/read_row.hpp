#pragma once
// A row of a machine's state, read back; an error names the row.

#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::storage {

/// `depth`: nesting of the row's JSON, at most.
template <class T>
Status read_row(const StateRow& row, int depth, T& out) {
  const auto json = codec::parse_object(row.text, depth);
  if (!json) return Error{fmt::format("{} {}: {}", row.kind, row.id, json.error().message)};
  return codec::read(json.value(), fmt::format("{} {}", row.kind, row.id), out);
}

}  // namespace sgd::storage
