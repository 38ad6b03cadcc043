#pragma once
// A record of a TensorBoard event file (TFRecord): length, its checksum, bytes, their checksum; and the messages in it.
// Pure: bytes in, bytes out.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/callbacks/report_values.hpp"

namespace sgd::callbacks {

/// u64 length, u32 masked CRC-32C of it, `bytes`, u32 masked CRC-32C of those; numbers are little endian.
[[nodiscard]] std::string framed_record(std::string_view bytes);

/// The record at the front of `bytes`; nothing: it is cut short or damaged.
[[nodiscard]] std::optional<std::string_view> first_record(std::string_view bytes);
/// Bytes around those of a record.
inline constexpr std::size_t kRecordFrameBytes = 16;

/// The first event of a file.
[[nodiscard]] std::string version_event(double wall_time);

/// What a TensorBoard callback makes of a report: a number is a scalar, a list of numbers a histogram. The marks that
/// RaySGD leaves out have no tag, and what is neither has none.
struct EventOptions {
  std::string prefix = "{phase}/";  ///< Of tags.
  std::string step = "iteration";   ///< Or "step", "epoch".
};
/// Also of a report without any such value: each report is one event.
[[nodiscard]] std::string report_event(const Report& report, const NameFilter& filter, const EventOptions& options);

/// `job`: resolved. Its settings, by their dotted paths.
[[nodiscard]] std::string hparams_event(const nlohmann::json& job, double wall_time);
[[nodiscard]] std::string session_end_event(bool succeeded, double wall_time);

/// Whether `event` is of a report: neither the file's version nor about hparams.
[[nodiscard]] bool is_report_event(std::string_view event);
[[nodiscard]] bool is_hparams_event(std::string_view event);

}  // namespace sgd::callbacks
