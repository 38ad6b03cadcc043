#include "launcher/cli/report_printer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::cli {
namespace {

/// What stands in front, or says nothing of the training.
bool is_in_front(const std::string& name) {
  static constexpr std::array kFront = {"phase", "epoch", "step"};
  return name.starts_with('_') ||
         std::any_of(kFront.begin(), kFront.end(), [&name](const char* front) { return name == front; });
}

std::string reported_value(const callbacks::Report& value) {
  return value.is_number_float() ? fmt::format("{:.6g}", value.get_ref<const double&>()) : dump_text(value);
}

/// Names come from ranks: none begins a line of its own.
std::string shown_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) <= ' '; }, '_');
  return name;
}

}  // namespace

std::string report_line(const callbacks::Report& report) {
  std::string line =
      fmt::format("report {}  {}", read_or(report, "_training_iteration", 0), shown_name(read_or(report, "phase", "")));
  for (const char* name : {"epoch", "step"})
    if (const callbacks::Report& value = member(report, name); value.is_number())
      line += fmt::format("  {} {}", name, reported_value(value));
  for (const auto& [name, value] : callbacks::flat_values(report))
    if (!is_in_front(name)) line += fmt::format("  {} {}", shown_name(name), reported_value(*value));
  return line;
}

ReportPrinter::ReportPrinter(Console& console, const job::JobSpec& job, bool is_in_stream) : console_(console) {
  if (is_in_stream) return;
  for (const nlohmann::json& callback : job.callbacks)
    if (read_or(callback, "type", "") == "console")
      shapes_.push_back({callbacks::NameFilter(callback), read_or(callback, "format", "") == "json"});
}

void ReportPrinter::print(const callbacks::Report& report) {
  for (const Shape& shape : shapes_) {
    std::string text = shape.is_json ? dump_text(shape.filter.of(report), 4)
                                     : report_line(shape.filter.of(callbacks::single_result(report)));
    text += "\n";
    if (*waiting_ + text.size() > kWaitingBytesMax) {
      ++dropped_;
      continue;
    }
    *waiting_ += text.size();
    const std::size_t size = text.size();
    console_.output(std::move(text), [waiting = waiting_, size] { *waiting -= size; });
  }
}

void ReportPrinter::end() {
  const std::int64_t dropped = std::exchange(dropped_, 0);
  if (dropped > 0)
    console_.complain("warning", fmt::format("callback console: {} reports were not printed: standard output was not "
                                             "read; they are in metrics.jsonl",
                                             dropped));
}

}  // namespace sgd::cli
