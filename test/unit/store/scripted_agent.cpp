#include "scripted_agent.hpp"

#include <algorithm>
#include <utility>

namespace sgd::test {
namespace {

constexpr int kTicksPerResend = 200;

std::deque<cluster::FactBody> rank_script(Rank rank, Generation generation, bool is_training, const Script& script) {
  const int pid = static_cast<int>(generation) * 100 + rank + 1;
  std::deque<cluster::FactBody> facts{cluster::WorkerStarted{rank, pid}};
  const auto report = [&](int epoch, const char* phase, int batch) {
    link::Report one{
        {epoch, phase, batch, 0}, epoch * 100 + batch, {{"num_samples", 8}, {"train_loss", 1.0 / (epoch + batch)}}};
    facts.push_back(cluster::Report{rank, std::move(one)});
  };
  if (is_training) {
    facts.push_back(cluster::WorkerReady{rank, {}});
    facts.push_back(cluster::WorkerFirstStep{rank, 1});
    for (int epoch = 1; epoch <= script.epochs; ++epoch) {
      for (int batch = 1; batch <= script.batches + 1; ++batch) report(epoch, "train", batch);
      report(epoch, "validate", 0);
    }
  }
  cluster::WorkerExited exited;
  exited.rank = rank;
  exited.pid = pid;
  exited.exit_code = 0;
  facts.push_back(exited);
  return facts;
}

}  // namespace

ScriptedAgent::ScriptedAgent(boost::asio::io_context& io, std::unique_ptr<net::AgentLink> link, NodeId node, int slots,
                             Incarnation incarnation, ScriptOf script_of)
    : link_(std::move(link)),
      node_(std::move(node)),
      slots_(slots),
      incarnation_(incarnation),
      script_of_(std::move(script_of)),
      timer_(io) {}

void ScriptedAgent::start() {
  link_->start({[this] { tell_all(); }, [this](const cluster::ToAgent& message) { on_message(message); },
                [](const std::string&) {}});
  tick();
}

cluster::NodeState ScriptedAgent::state() const {
  cluster::NodeState state;
  state.node = node_;
  state.incarnation = incarnation_;
  state.address = "127.0.0.1";
  state.slots = slots_;
  state.cpus = slots_;
  for (const auto& [id, run] : runs_) state.runs.push_back({id, run.newest});
  return state;
}

void ScriptedAgent::tell_all() {
  cluster::NodeState first = state();
  first.is_new_link = true;
  link_->send(first);
  for (const cluster::Fact& fact : outbox_) link_->send(fact);
}

void ScriptedAgent::on_message(const cluster::ToAgent& message) {
  if (const auto* desired = std::get_if<cluster::DesiredRun>(&message)) return on_desired(*desired);
  const auto* ack = std::get_if<cluster::FactAck>(&message);
  if (ack == nullptr || ack->incarnation != incarnation_) return;
  while (!outbox_.empty() && outbox_.front().sequence <= ack->sequence) outbox_.pop_front();
  acknowledged_ = std::max(acknowledged_, ack->sequence);
}

void ScriptedAgent::on_desired(const cluster::DesiredRun& desired) {
  Held& held = runs_[desired.run];
  if (desired.generation < held.newest) return;
  held.newest = desired.generation;
  switch (desired.want) {
    case cluster::Want::kPrepare:
      return add_fact(desired.run, desired.generation, desired.uid, cluster::PortReserved{29500});
    case cluster::Want::kRun:
    case cluster::Want::kLeave:
      if (held.started >= desired.generation) return;
      held.started = desired.generation;
      held.started_uid = desired.uid;
      held.cleared = desired.generation - 1;  // It was cleared on behalf of this one.
      held.script = script_of(desired);
      return;
    case cluster::Want::kStop:
    case cluster::Want::kClear:
    case cluster::Want::kGone:
      held.script.clear();
      if (held.cleared < desired.generation)
        add_fact(desired.run, desired.generation, desired.uid, cluster::Cleared{0});
      held.cleared = desired.generation;
      if (desired.want == cluster::Want::kGone) runs_.erase(desired.run);
      return;
  }
}

/// The ranks of this node take turns.
std::deque<cluster::FactBody> ScriptedAgent::script_of(const cluster::DesiredRun& desired) const {
  const Script script = script_of_(desired.run);
  std::vector<std::deque<cluster::FactBody>> ranks;
  for (const cluster::RankPlace& place : desired.ranks)
    ranks.push_back(rank_script(place.rank, desired.generation, desired.job->contains("training"), script));
  std::deque<cluster::FactBody> all;
  for (std::size_t index = 0;
       std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return index < rank.size(); }); ++index)
    for (auto& rank : ranks)
      if (index < rank.size()) all.push_back(std::move(rank[index]));
  const bool has_first =
      std::any_of(desired.ranks.begin(), desired.ranks.end(), [](const auto& place) { return place.rank == 0; });
  if (desired.generation == 1 && has_first && script.killed_after >= 0) {
    all.resize(std::min(all.size(), static_cast<std::size_t>(script.killed_after)));
    cluster::WorkerExited killed;
    killed.pid = 101;
    killed.signal = 9;
    all.push_back(killed);
  }
  return all;
}

void ScriptedAgent::add_fact(const RunId& run, Generation generation, GenerationUid uid, cluster::FactBody body) {
  outbox_.push_back({incarnation_, ++sequence_, run, generation, std::move(body), uid});
  link_->send(outbox_.back());
}

void ScriptedAgent::tick() {
  Duration pace = std::chrono::milliseconds(1);
  for (auto& [id, run] : runs_) {
    if (run.script.empty() || outbox_.size() >= script_of_(id).window) continue;
    cluster::FactBody body = std::move(run.script.front());
    run.script.pop_front();
    add_fact(id, run.started, run.started_uid, std::move(body));
    pace = script_of_(id).pace;
  }
  if (++ticks_ % kTicksPerResend == 0) {
    link_->send(state());  // It is alive, even when it waits.
    for (const cluster::Fact& fact : outbox_) link_->send(fact);
  }
  timer_.expires_after(pace);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

}  // namespace sgd::test
