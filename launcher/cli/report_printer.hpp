#pragma once
// The job's "console" callbacks: every report on standard output, as a line or as indented JSON. A reader who takes
// none costs reports that are counted, and never the run.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/job/spec.hpp"
#include "launcher/callbacks/report_values.hpp"
#include "launcher/cli/console.hpp"

namespace sgd::cli {

/// "report 7  train  epoch 2  step 938  train_loss 0.4183  ...".
[[nodiscard]] std::string report_line(const callbacks::Report& report);

class ReportPrinter {
 public:
  /// Printed, and not taken by who reads.
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;

  /// `is_in_stream`: every report is a line of standard output anyway, as JSON, and nothing else belongs there.
  ReportPrinter(Console& console, const job::JobSpec& job, bool is_in_stream);

  void print(const callbacks::Report& report);
  /// Says at the end what was left out.
  void end();

 private:
  struct Shape {
    callbacks::NameFilter filter;
    bool is_json = false;
  };

  Console& console_;
  std::vector<Shape> shapes_;
  std::shared_ptr<std::size_t> waiting_ = std::make_shared<std::size_t>(0);  ///< Bytes.
  std::int64_t dropped_ = 0;
};

}  // namespace sgd::cli
