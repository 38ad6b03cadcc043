#pragma once
// Counts failures and attempts of one run a second time, from its events alone, and holds every restart,
// and every refusal of one, against what the job allows.

#include <map>
#include <string>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::sim {

class BudgetCheck {
 public:
  explicit BudgetCheck(const job::JobSpec& job) : job_(job) {}

  /// The run lives once more: it counts anew, and its first generation is this one.
  void begin_again(Generation first) {
    on_judged();
    first_ = first;
    failures_ = 0;
    attempts_ = same_rank_ = refusals_ = repeats_ = 0;
    is_uncounted_ = asks_again_ = false;
    last_rank_ = -1;
  }
  void on_start(Generation generation, int world_size);
  /// `is_final`: whoever is blamed has ended with an error of the user.
  void on_event(const nlohmann::ordered_json& event, bool is_final);

 private:
  /// It has failed: what its ranks still say changes no count. Of a generation that is cleared for another reason it
  /// may still be heard that it had started.
  void on_judged() { live_ = was_started_ = false; }
  void on_failure(const nlohmann::ordered_json& event, bool is_final);
  void on_restart(const std::string& kind, bool counts, bool is_first, bool is_final);
  void on_refusal(const std::string& kind, bool counts, bool is_first);
  void use_attempt();

  const job::JobSpec& job_;
  Generation first_ = 1;
  bool live_ = false;
  bool was_started_ = false;
  Generation generation_ = 0;
  int world_size_ = 0;
  int executed_ = 0;           // Ranks of this generation.
  bool is_uncounted_ = false;  // A command's start has failed, and no rank of it is known to have been executed.
  std::int64_t failures_ = 0;
  int attempts_ = 0;
  int refusals_ = 0;  // In a row: starts that a node could not begin with.
  int repeats_ = 0;   // Of those: by nodes that were asked again, which uses no attempt.
  bool asks_again_ = false;
  bool is_free_ = false;
  int same_rank_ = 0;  // Failures of one rank in a row.
  int last_rank_ = -1;
};

}  // namespace sgd::sim
