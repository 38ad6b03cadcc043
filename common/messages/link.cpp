// Lines of the worker link. The only place that knows how an unknown type travels on and how a
// failure's text is shortened so that its line fits.

#include "common/messages/link.hpp"

#include "common/messages/link_fields.hpp"

namespace sgd::link {
namespace {

/// Nesting that a worker may send; lower than between our programs, which wrap it.
constexpr int kLineDepthMax = 64;

template <class Variant>
std::string encode_line(const Variant& message) {
  return codec::print(codec::write_variant(message)) + "\n";
}

/// Half of a failure's text, from its start: the first lines of a backtrace say the most.
Failed shortened(const Failed& failed) {
  return {failed.message.substr(0, failed.message.size() / 2 + 1),
          failed.backtrace.substr(0, failed.backtrace.size() / 2)};
}

template <class... Ts>
Result<std::variant<Ts...>> decode_line(std::string_view line, std::type_identity<std::variant<Ts...>>) {
  if (line.size() >= kLineBytesMax) {
    return Error{"line of " + std::to_string(line.size()) + " bytes; the link takes " + std::to_string(kLineBytesMax)};
  }
  const Result<codec::Json> object = codec::parse_object(line, kLineDepthMax + 1);
  if (!object.ok()) return object.error();
  auto found = codec::read_variant<Ts...>(object.value());
  if (!found.ok()) return found.error();
  if (found.value()) return std::move(*found.value());
  return std::variant<Ts...>(Unknown{object.value()["type"].template get<std::string>()});
}

}  // namespace

std::string encode(const FromWorker& message) {
  std::string line = encode_line(message);
  // A failure must always arrive. Escapes can make its text six times as long, so measure and halve.
  if (const auto* failed = std::get_if<Failed>(&message)) {
    Failed shorter = *failed;
    while (line.size() > kLineBytesMax) {
      shorter = shortened(shorter);
      line = encode_line(FromWorker(shorter));
    }
  }
  return line;
}

std::string encode(const ToWorker& message) {
  return encode_line(message);
}

bool is_counted(const FromWorker& message) {
  return !std::holds_alternative<Hello>(message) && !std::holds_alternative<Heartbeat>(message) &&
         !std::holds_alternative<Received>(message);
}

bool is_counted(const ToWorker& message) {
  return !std::holds_alternative<Fetching>(message) && !std::holds_alternative<Received>(message) &&
         !std::holds_alternative<Dropped>(message);
}

Result<FromWorker> decode_from_worker(std::string_view line) {
  return decode_line(line, std::type_identity<FromWorker>{});
}

Result<ToWorker> decode_to_worker(std::string_view line) {
  return decode_line(line, std::type_identity<ToWorker>{});
}

}  // namespace sgd::link
