#pragma once
// What an operator keeps of its own, as bytes: the text of its JSON and its named tensors. It travels between ranks and
// lies in memory checkpoints as a short description among other JSON, and the bytes themselves behind it: they are
// neither parsed nor copied on the way.
//
//   JSON with descriptions · NUL · bytes of the first state · bytes of the second · …
//
// JSON text holds no NUL, so the first one ends it. Knows nothing of torch.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/core/safetensors.hpp"

namespace sgd::worker {

struct OperatorState {
  std::string_view json = "{}";                     ///< As text.
  std::vector<TensorBytes> tensors;                 ///< Each name once.
  std::vector<std::shared_ptr<const void>> memory;  ///< Whatever the two point into.
};

/// Of which length its text is, and names, types and shapes of its tensors.
[[nodiscard]] nlohmann::json describe(const OperatorState& state);
/// Its bytes in order, valid as long as what it points into.
void append_pieces(const OperatorState& state, std::vector<std::string_view>& pieces);

/// Reads such a text from its beginning to its end.
class DescribedText {
 public:
  explicit DescribedText(std::string text);

  /// The JSON before the bytes.
  [[nodiscard]] Result<nlohmann::json> head() const;
  /// The next state, by its description. It shares the text's memory.
  [[nodiscard]] Result<OperatorState> next(const nlohmann::json& description);
  /// Whether every byte has been taken.
  [[nodiscard]] bool is_at_end() const { return rest_.empty(); }

 private:
  [[nodiscard]] std::string_view take(std::uint64_t bytes);

  std::shared_ptr<const std::string> text_;
  std::string_view head_;
  std::string_view rest_;
};

/// All pieces as one text.
[[nodiscard]] std::string joined(const std::vector<std::string_view>& pieces);

}  // namespace sgd::worker
