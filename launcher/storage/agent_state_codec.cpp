#include "launcher/storage/agent_state_codec.hpp"

#include <utility>

#include <fmt/format.h>

#include "launcher/storage/agent_state_fields.hpp"
#include "launcher/storage/read_row.hpp"

namespace sgd::storage {
namespace {

/// What a rank has said may be as deep as a message, and lies deeper here.
constexpr int kDepth = codec::kDepthMax + 16;

}  // namespace

std::vector<StateRow> encode_agent(const core::Agent& agent) {
  std::vector<StateRow> rows{{"agent", "", codec::print(codec::write(agent.state()))}};
  for (const auto& [id, run] : agent.runs()) rows.push_back({"run", id, codec::print(codec::write(run.state()))});
  return rows;
}

Result<core::SavedAgent> decode_agent(const std::vector<StateRow>& rows) {
  core::SavedAgent saved;
  bool is_whole = false;
  for (const StateRow& row : rows) {
    if (row.kind != "agent" && row.kind != "run") return Error{fmt::format("unknown kind of state \"{}\"", row.kind)};
    is_whole |= row.kind == "agent";
    const Status status =
        row.kind == "agent" ? read_row(row, kDepth, saved.state) : read_row(row, kDepth, saved.runs[row.id]);
    if (!status) return status.error();
  }
  if (!is_whole) return Error{"the state of no agent"};
  return saved;
}

}  // namespace sgd::storage
