// AgentShell's journal: what is written of each event, and when it begins anew with the state of now.
//
//   on --too long--> rewritten: with the state of now, when nothing is half done --> on
//   on --cannot be written, or beyond all limits--> off, and said --a while, or nothing is here--> begun anew --> on

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/agent/agent_shell.hpp"
#include "launcher/storage/agent_state_codec.hpp"

namespace sgd::agent {
namespace {

constexpr Duration kJournalAgain = std::chrono::minutes(1);
/// The same for a run that has come since: what its node lacked may have been the last one's.
constexpr Duration kJournalForNewRun = std::chrono::seconds(1);

}  // namespace

void AgentShell::write_down(TimePoint now, const core::AgentEvent& event) {
  if (!journal_->is_on() && !core_.idle()) {
    const bool is_for_new_run = keepers_made_ != keepers_at_try_;
    if (now < journal_tried_at_ + (is_for_new_run ? kJournalForNewRun : kJournalAgain)) return;
    note_journal_try(now);
    return rewrite_journal_soon();
  }
  // Nothing is here: what is done about this event is done before the next one, and needs no journal.
  if (core_.idle() && !core_.was_soft() && journal_->is_worth_beginning_anew()) {
    if (!begin_journal()) journal_->remove();
    return;
  }
  std::vector<core::TimedEvent> kept;
  filter_.take(now, event, core_.was_soft(), kept);
  if (const Status written = journal_->append(kept, core_.last_sequence()); !written) {
    note_journal_try(now);
    observer_.on_warning(fmt::format("no next life of this agent can take over what runs here: {}; tried again in {}",
                                     written.error().message, format_duration(kJournalAgain)));
  }
  if (journal_->is_long()) rewrite_journal_soon();
}

void AgentShell::note_journal_try(TimePoint now) {
  journal_tried_at_ = now;
  keepers_at_try_ = keepers_made_;
}

/// Not now: what has been read of keepers and ranks is counted before the machine is told of it.
void AgentShell::rewrite_journal_soon() {
  if (std::exchange(is_rewriting_, true)) return;
  boost::asio::post(io_, [this] { rewrite_journal(); });
}

void AgentShell::rewrite_journal() {
  is_rewriting_ = false;
  if (!is_settled()) {
    keepers_at_try_ = keepers_made_ + 1;  // An event of a second later asks again.
    return;
  }
  const bool was_on = journal_->is_on();
  if (begin_journal() && !was_on)
    observer_.on_warning("the next life of this agent can take over again what runs here");
}

/// Where the machine has a keeper, it is here: none has ended, or has not been started, without being told of yet.
bool AgentShell::is_settled() const {
  using Keeper = core::NodeRunState::Keeper;
  for (const auto& [run, its] : core_.runs()) {
    const Keeper keeper = its.state().keeper_;
    if (keepers_.contains(run) != (keeper != Keeper::kNone && keeper != Keeper::kEnded)) return false;
  }
  return true;
}

/// Of runs and links that the machine knows, or has something to tell of: of others, what happened is done.
AgentShellState AgentShell::shell_state() const {
  AgentShellState shell_state;
  shell_state.keepers_made = keepers_made_;
  shell_state.next_link = workers_.next();
  for (const auto& [run, its] : core_.runs()) {
    if (const auto keeper = keepers_.find(run); keeper != keepers_.end())
      shell_state.keepers[run] = keeper->second->kept();
    if (const auto path = link_paths_.find(run); path != link_paths_.end()) shell_state.link_paths.insert(*path);
  }
  for (const auto& [link, run] : core_.state().owners_)
    if (const auto kept = workers_.kept(link)) shell_state.links[link] = *kept;
  if (!spool_) return shell_state;
  const auto& untold = core_.state().outbox_.state().lanes_;
  for (const auto& [run, remote] : spool_->remotes())
    if (core_.runs().contains(run) || untold.contains(run)) shell_state.remotes[run] = remote;
  return shell_state;
}

bool AgentShell::begin_journal() {
  std::vector<storage::StateRow> state = storage::encode_agent(core_);
  state.push_back(encode(shell_state()));
  const Status begun = journal_->begin(persistence_->header, state);
  if (begun) filter_ = {};
  if (!begun) observer_.on_warning("the journal cannot be rewritten: " + begun.error().message);
  return begun.ok();
}

}  // namespace sgd::agent
