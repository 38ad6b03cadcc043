// Prometheus' text format, as a scraper reads it.

#include "launcher/http/metrics_text.hpp"

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>

#include "launcher/http/coordinator_metrics.hpp"

using namespace sgd;
using namespace sgd::http;

TEST_CASE("metrics: families, labels and numbers", "[http]") {
  MetricsText text;
  text.family(MetricKind::kGauge, "a_b", "A gauge.").sample(1.5).sample(-0.0, {{"x", "1"}, {"y", "q\"\\\n\xff"}});
  text.counter("c_total", "A counter.", 1e15).sample(1e21, {{"x", "y"}});
  text.gauge("d", "Odd ones.", std::numeric_limits<double>::quiet_NaN())
      .sample(std::numeric_limits<double>::infinity());
  CHECK(text.take() ==
        "# HELP a_b A gauge.\n# TYPE a_b gauge\na_b 1.5\na_b{x=\"1\",y=\"q\\\"\\\\\\n?\"} -0\n"
        "# HELP c_total A counter.\n# TYPE c_total counter\nc_total 1000000000000000\nc_total{x=\"y\"} 1e+21\n"
        "# HELP d Odd ones.\n# TYPE d gauge\nd NaN\nd +Inf\n");
}

TEST_CASE("metrics: a histogram cumulates and ends with +Inf", "[http]") {
  Histogram histogram({0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0, std::nan("")}) histogram.observe(value);
  MetricsText text;
  text.family(MetricKind::kHistogram, "h_seconds", "Times.").histogram(histogram);
  CHECK(text.take() ==
        "# HELP h_seconds Times.\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"0.1\"} 2\n"
        "h_seconds_bucket{le=\"1\"} 3\nh_seconds_bucket{le=\"+Inf\"} 4\nh_seconds_sum 7.65\nh_seconds_count "
        "4\n");
}

TEST_CASE("metrics: labels are bounded", "[http]") {
  CountByLabel counts;
  for (int number = 0; number < 1000; ++number) counts.add("reason " + std::to_string(number));
  counts.add("reason 3", 5);
  CHECK(counts.counts().size() == CountByLabel::kLabelsMax + 1);
  CHECK(counts.counts().at("other") == 1000 - CountByLabel::kLabelsMax);
  CHECK(counts.counts().at("reason 3") == 6);
}

namespace {

/// Every line is a comment of its family or a sample of it, and no family or sample occurs twice.
void check_whole(const std::string& text, const std::string& prefix) {
  static const std::regex sample(R"(^([a-z_0-9]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? (NaN|[+-]Inf|[-+.e0-9]+)$)");
  std::set<std::string> seen;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      CHECK(seen.insert(family + " family").second);
      CHECK((family.starts_with(prefix) || family.starts_with("process_") || family == "sgd_build_info"));
      continue;
    }
    if (line.starts_with("# TYPE ")) continue;
    std::smatch parts;
    REQUIRE(std::regex_match(line, parts, sample));
    CHECK(parts[1].str().starts_with(family));
    CHECK(seen.insert(parts[1].str() + parts[2].str()).second);
  }
  CHECK(seen.size() > 20);
}

}  // namespace

TEST_CASE("metrics: the coordinator's text is well formed", "[http]") {
  CoordinatorMetrics coordinator;
  coordinator.agents = 3;
  coordinator.runs = {{"running", 2}, {"waiting", 0}};
  coordinator.frames_refused.add("too_long");
  coordinator.store_commit.observe(0.004);
  const ProcessMetrics process = read_process_metrics();
  CHECK(process.resident_bytes > 1e6);
  CHECK(process.cpu_seconds > 0);
  CHECK(process.open_fds >= 3);
  CHECK(process.open_fds < process.max_fds);
  CHECK(process.start_time_seconds > 1.6e9);
  const std::string text = text_of(coordinator, process);
  check_whole(text, "sgd_coordinator_");
  for (const char* line : {"\nsgd_coordinator_agents 3\n", "\nsgd_coordinator_runs{state=\"running\"} 2\n",
                           "\nsgd_coordinator_runs{state=\"waiting\"} 0\n",
                           "\nsgd_coordinator_frames_refused_total{reason=\"too_long\"} 1\n",
                           "\nsgd_coordinator_store_commit_seconds_bucket{le=\"0.005\"} 1\n"})
    CHECK_THAT(text, Catch::Contains(line));
}
