#include "worker/torch/state_parts.hpp"

#include <cstdint>
#include <string_view>

namespace sgd::worker {
namespace {

/// FNV-1a over what tells layouts apart; each text ends with a zero, so that no two lists run together.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char letter : text) mix(static_cast<unsigned char>(letter));
    mix(0);
  }
  void add(const std::vector<std::int64_t>& shape) {
    for (const std::int64_t extent : shape) add(std::to_string(extent));
    add("");
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  void mix(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

StateParts state_parts(const StateTensors& tensors) {
  StateParts state;
  Digest digest;
  for (const FlatTensors& flat : tensors.flat) {
    digest.add(flat.suffix);
    for (const ParameterPlace& place : flat.places) {
      digest.add(place.name);
      digest.add(place.shape);
    }
    state.parts.push_back(std::as_writable_bytes(flat.values));
  }
  for (const OptimizerKind& one : tensors.optimizers) {
    digest.add(one.name);
    digest.add(one.type);
  }
  state.first_buffer = state.parts.size();
  for (const ModuleBuffer& buffer : tensors.buffers) {
    digest.add(buffer.name);
    digest.add(name_of(buffer.type));
    digest.add(buffer.shape);
    state.parts.push_back(buffer.bytes);
  }
  for (const auto part : state.parts) state.layout.part_bytes.push_back(part.size());
  state.layout.digest = digest.value();
  return state;
}

}  // namespace sgd::worker
