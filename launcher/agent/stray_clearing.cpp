#include "launcher/agent/stray_clearing.hpp"

#include <unistd.h>

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/process/clock.hpp"
#include "launcher/process/own_children.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::agent {
namespace {

std::string undead(pid_t pid) {
  return fmt::format("process {} does not die of SIGKILL", pid);
}

}  // namespace

StrayClearing::StrayClearing(boost::asio::io_context& io, DeadKeeper dead, Handlers handlers)
    : dead_(std::move(dead)),
      handlers_(std::move(handlers)),
      timer_(io),
      orphans_({}, process::TreeKiller::Spares::kTrees),
      strays_({dead_.reattach.mark, false, dead_.pid}) {}

void StrayClearing::start() {
  deadline_ = process::monotonic_now() + limit;
  arm(Duration::zero());
}

void StrayClearing::arm(Duration wait) {
  timer_.after(wait, [this] { pass(); });
}

void StrayClearing::pass() {
  const std::string left = look();
  empty_passes_ = left.empty() ? empty_passes_ + 1 : 0;
  if (empty_passes_ == process::StrayKiller::kPassesToBeSure) return end({});
  if (!left.empty() && process::monotonic_now() >= deadline_) return end(Error{left});
  arm(left.empty() ? Duration::zero() : kPassInterval);
}

std::string StrayClearing::look() {
  std::string left;
  if (dead_.leaf) {
    const Status ordered = dead_.leaf->order_kill();
    if (!ordered) left = ordered.error().message;
    if (ordered && dead_.leaf->is_populated())
      left = fmt::format("what is in {} does not die of SIGKILL", dead_.leaf->path());
  }
  if (dead_.was_our_child)
    if (const std::string orphans = look_for_orphans(); !orphans.empty()) left = orphans;
  if (!dead_.reattach.mark.empty())
    if (const std::vector<process::ProcessEntry> strays = strays_.pass(); !strays.empty())
      left = undead(strays.front().pid);
  return left;
}

std::string StrayClearing::look_for_orphans() {
  std::set<pid_t> spared = process::own_children();
  spared.merge(handlers_.spared());
  orphans_.spare(std::move(spared));
  if (orphans_.pass() == 0) return {};
  for (const process::ProcessEntry& entry : orphans_.left())
    if (entry.zombie && entry.parent == ::getpid()) process::reap_child(entry.pid);
  return undead(orphans_.left().front().pid);
}

void StrayClearing::end(const Status& cleared) {
  if (dead_.leaf) dead_.leaf->remove();
  if (!dead_.reattach.socket.empty()) (void)::unlink(dead_.reattach.socket.c_str());
  handlers_.on_done(cleared, strays_.killed());
}

}  // namespace sgd::agent
