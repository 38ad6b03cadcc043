#include "test/sim/last_words.hpp"

namespace sgd::sim {

void LastWords::ignore(const Speaker& speaker) {
  seen_.said.erase(speaker);
  seen_.exits.erase(speaker);
  seen_.ignored.insert(speaker);
}

void LastWords::ignore(const RunId& run) {
  std::erase_if(seen_.said, [&run](const auto& words) { return words.first.run == run; });
  std::erase_if(seen_.exits, [&run](const auto& exit) { return exit.first.run == run; });
}

void LastWords::on_spawn(const Speaker& speaker) {
  seen_.said.erase(speaker);
  seen_.exits.erase(speaker);
  seen_.ignored.erase(speaker);
  std::set<GenerationUid>& older = seen_.older_than_ranks[speaker.run] = seen_.wishes[speaker.run];
  older.erase(seen_.wish[speaker.run]);
}

void LastWords::on_wish(const RunId& run, GenerationUid uid) {
  seen_.wish[run] = uid;
  seen_.wishes[run].insert(uid);
}

void LastWords::on_fact(const cluster::Fact& fact) {
  if (fact.sequence <= seen_.sequence) return;  // It is sent again.
  seen_.sequence = fact.sequence;
  if (const auto* report = std::get_if<cluster::Report>(&fact.body)) {
    const auto words = seen_.said.find({fact.run, fact.generation, report->rank});
    if (words == seen_.said.end()) return;
    words->second.pop_front();
    if (words->second.empty()) seen_.said.erase(words);
  } else if (const auto* exited = std::get_if<cluster::WorkerExited>(&fact.body)) {
    const Speaker speaker{fact.run, fact.generation, exited->rank};
    check_words(speaker, "its exit");
    seen_.exits.erase(speaker);
  } else if (std::holds_alternative<cluster::Cleared>(fact.body)) {
    check_cleared(fact);
  }
}

void LastWords::check_words(const Speaker& speaker, const char* before) const {
  const auto words = seen_.said.find(speaker);
  if (words == seen_.said.end() || words->second.back() <= well_since_) return;
  violated("{}: {} report(s) of rank {} of generation {} are not told before {}", speaker.run, words->second.size(),
           speaker.rank, speaker.generation, before);
}

void LastWords::check_cleared(const cluster::Fact& fact) const {
  const RunId& run = fact.run;
  const Generation generation = fact.generation;
  const auto older = seen_.older_than_ranks.find(run);
  if (older != seen_.older_than_ranks.end() && older->second.contains(fact.uid)) return;
  for (const auto& [speaker, words] : seen_.said)
    if (speaker.run == run && speaker.generation <= generation) check_words(speaker, "the group's clearing");
  for (const auto& [speaker, heard_at] : seen_.exits)
    if (speaker.run == run && speaker.generation <= generation && heard_at > well_since_)
      violated("{}: the end of rank {} of generation {} is not told before the group's clearing", run, speaker.rank,
               speaker.generation);
}

}  // namespace sgd::sim
