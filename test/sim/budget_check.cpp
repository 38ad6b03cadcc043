#include "test/sim/budget_check.hpp"

#include <utility>

#include "test/sim/world.hpp"

namespace sgd::sim {
namespace {

constexpr int kCrashesInPlace = 3;
constexpr int kRefusalsMost = 3;

bool is_of_node(const std::string& kind) {
  return kind == "node_lost" || kind == "node_refused";
}

}  // namespace

void BudgetCheck::on_start(Generation generation, int world_size) {
  if (job_.recovery.max_failures != job::kUnlimited && failures_ > job_.recovery.max_failures)
    violated("{}: a start after {} failures, {} are allowed", job_.name, failures_, job_.recovery.max_failures);
  is_uncounted_ = false;
  generation_ = generation;
  live_ = true;
  was_started_ = false;
  world_size_ = world_size;
  executed_ = 0;
}

void BudgetCheck::on_event(const nlohmann::ordered_json& event, bool is_final) {
  const std::string& what = event.at("event").get_ref<const std::string&>();
  if (what == "failure") {
    on_failure(event, is_final);
    return on_judged();
  }
  if (what == "gpu_excluded") same_rank_ = 0;  // It goes on with another one.
  if (what == "epoch_finished" && job_.training) failures_ = 0;
  if (what == "backoff" && event.at("kind") == "no_capacity") use_attempt();
  if (what == "asking_again") asks_again_ = true;
  const bool is_executed = what == "worker_started" && !job_.training && event.at("generation") == generation_;
  if (is_executed) ++executed_;
  if (is_executed && !live_ && std::exchange(is_uncounted_, false)) ++failures_;
  if (!live_) return;
  const bool all_executed = is_executed && executed_ == world_size_;
  if (what != "first_step" && !all_executed) return;
  was_started_ = true;
  attempts_ = refusals_ = repeats_ = 0;
  asks_again_ = false;
}

void BudgetCheck::use_attempt() {
  if (++attempts_ > job_.recovery.backoff.attempts)
    violated("{}: attempt {} of {}", job_.name, attempts_, job_.recovery.backoff.attempts);
}

void BudgetCheck::on_failure(const nlohmann::ordered_json& event, bool is_final) {
  const std::string kind = event.at("kind");
  const int rank = event.at("rank").is_null() ? -1 : event.at("rank").get<int>();
  // One that a coordinator had placed when it died, and of which no node was told.
  if (event.at("generation") > generation_) {
    was_started_ = false;
    executed_ = 0;
  }
  if (was_started_ && !is_of_node(kind)) {
    same_rank_ = rank >= 0 && rank == last_rank_ ? same_rank_ + 1 : 1;
    last_rank_ = rank;
  }
  const bool is_first = event.at("generation") == first_ + refusals_;
  if (kind == "node_refused") ++refusals_;
  is_free_ = !was_started_ && kind == "node_refused" && asks_again_;
  if (is_free_) ++repeats_;
  if (!was_started_) asks_again_ = false;
  // One that could not be executed in the first place is no start, whatever others of it were.
  const std::string& message = event.at("message").get_ref<const std::string&>();
  const bool is_refused = is_first && kind == "exit_code" && message.starts_with("could not start");
  const bool counts = was_started_ || (executed_ > 0 && !is_of_node(kind) && !is_refused);
  if (event.at("restart") == true) return on_restart(kind, counts, is_first, is_final);
  if (!is_final) on_refusal(kind, counts, is_first);
}

void BudgetCheck::on_restart(const std::string& kind, bool counts, bool is_first, bool is_final) {
  if (is_final) violated("{}: a restart after an error of the user", job_.name);
  if (!counts) {
    if (is_first && kind == "exit_code") violated("{}: a restart of a first start that failed", job_.name);
    if (is_free_) return;
    if (is_first && refusals_ - repeats_ >= kRefusalsMost)
      violated("{}: goes to another node after {}", job_.name, refusals_);
    is_uncounted_ = !job_.training && !is_of_node(kind);
    return use_attempt();
  }
  if (is_of_node(kind)) return;
  ++failures_;
  if (job_.recovery.max_failures != job::kUnlimited && failures_ > job_.recovery.max_failures)
    violated("{}: a restart after {} failures, {} are allowed", job_.name, failures_, job_.recovery.max_failures);
}

void BudgetCheck::on_refusal(const std::string& kind, bool counts, bool is_first) {
  if (!counts) {
    const bool is_refused = kind == "node_refused" && refusals_ - repeats_ >= kRefusalsMost && !is_free_;
    const bool is_over = is_first && (kind == "exit_code" || is_refused);
    if (is_over || attempts_ >= job_.recovery.backoff.attempts) return;
    violated("{}: no restart of a failed start after {} of {} attempts", job_.name, attempts_,
             job_.recovery.backoff.attempts);
  }
  const std::int64_t allowed = job_.recovery.max_failures;
  const bool used_up = allowed != job::kUnlimited && failures_ + 1 > allowed;
  if (is_of_node(kind) || (!used_up && same_rank_ < kCrashesInPlace))
    violated("{}: no restart after {} ({} failures before, {} allowed)", job_.name, kind, failures_, allowed);
}

}  // namespace sgd::sim
