#include "launcher/callbacks/event_record.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "common/checkpoint/crc32c.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/protobuf.hpp"

namespace sgd::callbacks {
namespace {

// Numbers of fields, as in tensorflow/core/util/event.proto, core/framework/summary.proto and TensorBoard's
// plugins/hparams/plugin_data.proto.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
}
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kHisto = 5, kMetadata = 9;
}
namespace histo_field {
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}
namespace hparams_field {
constexpr int kSessionStart = 3, kSessionEnd = 4, kParameters = 1, kStartTime = 5, kStatus = 1, kEndTime = 2;
constexpr std::uint64_t kSuccess = 1, kFailure = 2;
}  // namespace hparams_field
constexpr int kOfASummary = 1;  ///< Its values.
constexpr std::string_view kHparamsTag = "_hparams_/";
constexpr std::size_t kBins = 30;

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = checkpoint::crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size())));
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t byte = 0; byte < sizeof value; ++byte) bytes += static_cast<char>(value >> (8 * byte) & 0xff);
  return bytes;
}

std::uint64_t read_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t byte = bytes.size(); byte > 0; --byte)
    value = value << 8 | static_cast<std::uint8_t>(bytes[byte - 1]);
  return value;
}

bool has_tag(const std::string& name) {
  return name != "_pid" && name != "_timestamp" && name != "_time_total_s" && name != "_training_iteration";
}

std::vector<double> finite_numbers(const Report& list) {
  std::vector<double> numbers;
  for (const Report& one : list) {
    if (!one.is_number()) return {};
    numbers.push_back(one.get<double>());
    if (!std::isfinite(numbers.back())) return {};
  }
  return numbers;
}

/// Bins of equal width from the least to the greatest number; `numbers` has one at least.
Message histogram_of(const std::vector<double>& numbers) {
  const auto [least, greatest] = std::minmax_element(numbers.begin(), numbers.end());
  const double width = (*greatest - *least) / static_cast<double>(kBins);
  const bool is_flat = !(width > 0) || !std::isfinite(width);
  std::vector<double> limits;
  for (std::size_t bin = 1; !is_flat && bin < kBins; ++bin) limits.push_back(*least + width * static_cast<double>(bin));
  limits.push_back(*greatest);
  std::vector<double> counts(limits.size(), 0);
  double sum = 0;
  double squares = 0;
  for (const double number : numbers) {
    const auto bin = std::lower_bound(limits.begin(), limits.end() - 1, number) - limits.begin();
    counts[static_cast<std::size_t>(bin)] += 1;
    sum += number;
    squares += number * number;
  }
  using namespace histo_field;
  Message histogram;
  histogram.real(kMin, *least).real(kMax, *greatest).real(kNum, static_cast<double>(numbers.size()));
  histogram.real(kSum, sum).real(kSumSquares, squares).reals(kBucketLimit, limits).reals(kBucket, counts);
  return histogram;
}

std::string front_of_tags(const std::string& prefix, const std::string& phase) {
  static const std::string kPhase = "{phase}";
  std::string front = prefix;
  if (const std::size_t at = front.find(kPhase); at != std::string::npos) front.replace(at, kPhase.size(), phase);
  return front;
}

void add_value(Message& summary, const std::string& tag, const Report& value) {
  Message out;
  out.text(value_field::kTag, tag);
  if (value.is_number() || value.is_boolean()) {
    const double number = value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>();
    // Also of a finite double that no float holds: it would be an infinite one.
    if (!(std::abs(number) <= std::numeric_limits<float>::max())) return;
    out.real32(value_field::kSimpleValue, static_cast<float>(number));
  } else {
    const std::vector<double> numbers = value.is_array() ? finite_numbers(value) : std::vector<double>();
    if (numbers.empty()) return;
    out.message(value_field::kHisto, histogram_of(numbers));
  }
  summary.message(kOfASummary, out);
}

/// A summary of one value that has nothing but data for the plug-in.
std::string hparams_message(const std::string& tag, int field, const Message& session, double wall_time) {
  Message plugin_data;
  plugin_data.text(1, "hparams").message(2, Message().message(field, session));
  Message value;
  value.text(value_field::kTag, std::string(kHparamsTag) + tag);
  value.message(value_field::kMetadata, Message().message(1, plugin_data));
  Message event;
  event.real(event_field::kWallTime, wall_time);
  event.message(event_field::kSummary, Message().message(kOfASummary, value));
  return event.bytes();
}

/// A google.protobuf.Value, or nothing of a value that has no one.
std::optional<Message> setting(const nlohmann::json& value) {
  constexpr int kNumber = 2, kText = 3, kBool = 4;
  if (value.is_boolean()) return Message().whole(kBool, value.get<bool>() ? 1 : 0);
  if (value.is_number()) return Message().real(kNumber, value.get<double>());
  if (value.is_string()) return Message().text(kText, value.get<std::string>());
  if (value.is_array()) return Message().text(kText, dump_text(value));
  return std::nullopt;
}

void add_settings(Message& session, const nlohmann::json& values, const std::string& front) {
  for (const auto& [key, value] : values.items()) {
    const std::string path = front.empty() ? key : front + "." + key;
    if (value.is_object()) {
      add_settings(session, value, path);
    } else if (const auto one = setting(value)) {
      session.message(hparams_field::kParameters, Message().text(1, path).message(2, *one));
    }
  }
}

}  // namespace

std::string framed_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  std::string out = length + little_endian(masked_crc(length));
  out += bytes;
  return out + little_endian(masked_crc(bytes));
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  constexpr std::size_t kLengthBytes = 8;
  constexpr std::size_t kCrcBytes = 4;
  if (bytes.size() < kRecordFrameBytes) return std::nullopt;
  const std::uint64_t length = read_little_endian(bytes.substr(0, kLengthBytes));
  if (read_little_endian(bytes.substr(kLengthBytes, kCrcBytes)) != masked_crc(bytes.substr(0, kLengthBytes)))
    return std::nullopt;
  if (length > bytes.size() - kRecordFrameBytes) return std::nullopt;
  const std::string_view content = bytes.substr(kLengthBytes + kCrcBytes, length);
  const std::string_view crc = bytes.substr(kLengthBytes + kCrcBytes + length, kCrcBytes);
  return read_little_endian(crc) == masked_crc(content) ? std::optional(content) : std::nullopt;
}

std::string version_event(double wall_time) {
  return Message().real(event_field::kWallTime, wall_time).text(event_field::kFileVersion, "brain.Event:2").bytes();
}

std::string report_event(const Report& report, const NameFilter& filter, const EventOptions& options) {
  const char* counter = options.step == "iteration" ? "_training_iteration" : options.step.c_str();
  Message summary;
  const std::string front = front_of_tags(options.prefix, read_or(report, "phase", ""));
  const Report result = single_result(report);
  for (const auto& [name, value] : flat_values(result))
    if (has_tag(name) && filter.takes(name)) add_value(summary, front + name, *value);
  Message event;
  event.real(event_field::kWallTime, read_or(report, "_timestamp", 0.0));
  event.whole(event_field::kStep, static_cast<std::uint64_t>(read_or(report, counter, std::int64_t{0})));
  event.message(event_field::kSummary, summary);
  return event.bytes();
}

std::string hparams_event(const nlohmann::json& job, double wall_time) {
  Message session;
  for (const char* key : {"num_workers", "command"})
    if (const auto one = setting(member(job, key)))
      session.message(hparams_field::kParameters, Message().text(1, key).message(2, *one));
  if (member(job, "training").is_object()) add_settings(session, member(job, "training"), "");
  session.real(hparams_field::kStartTime, wall_time);
  return hparams_message("session_start_info", hparams_field::kSessionStart, session, wall_time);
}

std::string session_end_event(bool succeeded, double wall_time) {
  Message session;
  session.whole(hparams_field::kStatus, succeeded ? hparams_field::kSuccess : hparams_field::kFailure);
  session.real(hparams_field::kEndTime, wall_time);
  return hparams_message("session_end_info", hparams_field::kSessionEnd, session, wall_time);
}

bool is_hparams_event(std::string_view event) {
  const auto summary = find_field(event, event_field::kSummary);
  const auto value = summary ? find_field(*summary, kOfASummary) : std::nullopt;
  const auto tag = value ? find_field(*value, value_field::kTag) : std::nullopt;
  return tag && tag->starts_with(kHparamsTag);
}

bool is_report_event(std::string_view event) {
  return find_field(event, event_field::kSummary).has_value() && !is_hparams_event(event);
}

}  // namespace sgd::callbacks
