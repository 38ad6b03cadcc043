// Job files with overrides: text up to the first NUL byte is the file, lines behind it are "path=value" of
// --set. A job that loads must load again from its resolved form and be the same; one that does not must say
// why.

#include "common/job/load.hpp"

#include <string>

#include "test/fuzz/memory_file.hpp"

namespace {

sgd::job::Overrides overrides_of(std::string_view lines) {
  sgd::job::Overrides overrides;
  while (!lines.empty()) {
    const std::string line(lines.substr(0, lines.find('\n')));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    overrides.sets.push_back({line.substr(0, equals), line.substr(equals + 1), "--set " + line.substr(0, equals)});
  }
  return overrides;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sgd::fuzz::MemoryFile file;
  // The schema is parsed by whoever loads first, and is not the input's memory.
  static const sgd::job::LoadResult first = sgd::job::load_resolved(nlohmann::json::object());
  (void)first;
  const std::string_view input = sgd::fuzz::text_of(data, size);
  const std::string_view text = input.substr(0, input.find('\0'));
  const sgd::job::Overrides overrides = overrides_of(input.substr(std::min(text.size() + 1, size)));
  // Each value has its place kept, each wrong key an error with suggestions, and defaults are filled in.
  const sgd::fuzz::MemoryBound bound(size, 2048, 1 << 20);
  const sgd::job::LoadResult loaded = sgd::job::load_job_file(file.hold(text.data(), text.size()), overrides);
  FUZZ_CHECK(loaded.job.has_value() != loaded.diagnostics.has_errors());
  for (const sgd::Diagnostic& item : loaded.diagnostics.items) FUZZ_CHECK(!item.text().empty());
  if (!loaded.job) return 0;
  const sgd::job::LoadResult again = sgd::job::load_resolved(loaded.job->resolved);
  FUZZ_CHECK(again.job.has_value());
  FUZZ_CHECK(again.job->resolved == loaded.job->resolved);
  return 0;
}
