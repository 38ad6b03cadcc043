// "tune" of a job file, in a command's job. What is accepted has trials, each of which lies in its domains, and a
// scheduler that can be written and read again; what is not says why.

#include "launcher/tune/make_scheduler.hpp"
#include "test/fuzz/memory_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sgd::fuzz::MemoryFile file;
  // The schema is parsed by whoever loads first, and is not the input's memory.
  static const sgd::job::LoadResult first = sgd::job::load_resolved(nlohmann::json::object());
  (void)first;
  const std::string text = "{\"command\": [\"true\"], \"tune\": " + std::string(sgd::fuzz::text_of(data, size)) + "}";
  const sgd::fuzz::MemoryBound bound(size, 4096, 1 << 20);
  const sgd::job::LoadResult loaded = sgd::job::load_job_file(file.hold(text.data(), text.size()), {});
  sgd::Diagnostics diagnostics = loaded.diagnostics;
  const auto spec = sgd::tune::parse_experiment(loaded, diagnostics);
  for (const sgd::Diagnostic& item : diagnostics.items) FUZZ_CHECK(!item.text().empty());
  const bool has_tune = loaded.job && loaded.job->tune.is_object();
  FUZZ_CHECK(spec.has_value() == (has_tune && !diagnostics.has_errors()));
  if (!spec) return 0;
  FUZZ_CHECK(spec->trials() >= 1 && spec->trials() <= sgd::tune::kTrialsMax);
  const auto scheduler = sgd::tune::make_scheduler(*spec);
  if (spec->search.kind != sgd::tune::SearchSpec::Kind::kExec) {
    const sgd::tune::TrialList list = spec->list();
    for (const sgd::tune::TrialId id : {sgd::tune::TrialId{0}, list.size() / 2, list.size() - 1}) {
      const sgd::tune::Trial trial = list.at(id);
      FUZZ_CHECK(spec->parameters.misfit(trial.values).empty());
      FUZZ_CHECK(trial.values == list.at(id).values);
    }
    scheduler->add_trial(0, list.at(0).values);
    (void)scheduler->on_report({0, 1, 0.5, false});
  }
  const nlohmann::json state = scheduler->state();
  const auto again = sgd::tune::restore_scheduler(*spec, nlohmann::json::parse(state.dump()));
  FUZZ_CHECK(again.ok() && again.value()->state() == state);
  return 0;
}
