#pragma once
// The wire format of Protocol Buffers, as far as TensorBoard's messages need it: fields written one behind the other,
// and the outer fields of a message looked for. Written here since it is smaller than what a library would bring.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::callbacks {

class Message {
 public:
  Message& whole(int field, std::uint64_t value);         ///< int32, int64, enum, bool.
  Message& real(int field, double value);                 ///< double.
  Message& real32(int field, float value);                ///< float.
  Message& text(int field, std::string_view bytes);       ///< string, bytes, and messages.
  Message& reals(int field, const std::vector<double>&);  ///< repeated double, packed.
  Message& message(int field, const Message& inner) { return text(field, inner.bytes()); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value);
  void key(int field, int wire_type);
  template <class Unsigned>
  void fixed(Unsigned value);

  std::string bytes_;
};

/// The content of the first string, bytes or message `field` of `message`; nothing: it has none, or is no message.
[[nodiscard]] std::optional<std::string_view> find_field(std::string_view message, int field);

}  // namespace sgd::callbacks
