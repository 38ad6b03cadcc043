#include "worker/torch/rank_message.hpp"

#include <utility>

#include "common/json/lenient.hpp"

namespace sgd::worker {

std::string encode(const RankMessage& message) {
  nlohmann::json head;
  head["sums"] = message.record.sums;
  head["own"] = describe(message.record.own);
  head["shared"] = describe(message.shared);
  head["has_unsent"] = message.has_unsent;
  head["is_busy"] = message.is_busy;
  const std::string text = head.dump();
  std::vector<std::string_view> pieces = {text, std::string_view("\0", 1)};
  append_pieces(message.record.own, pieces);
  append_pieces(message.shared, pieces);
  return joined(pieces);
}

Result<RankMessage> decode_rank_message(std::string text) {
  DescribedText described(std::move(text));
  Result<nlohmann::json> head = described.head();
  if (!head) return head.error();
  RankMessage message;
  Result<OperatorState> own = described.next(member(head.value(), "own"));
  if (!own) return own.error();
  Result<OperatorState> shared = described.next(member(head.value(), "shared"));
  if (!shared) return shared.error();
  message.record.sums = std::move(head.value()["sums"]);
  message.record.own = std::move(own).value();
  message.shared = std::move(shared).value();
  message.has_unsent = read_or(head.value(), "has_unsent", false);
  message.is_busy = read_or(head.value(), "is_busy", false);
  return message;
}

}  // namespace sgd::worker
