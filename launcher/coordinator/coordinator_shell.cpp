#include "launcher/coordinator/coordinator_shell.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

/// A port nobody listens on at this moment; 0 when the system has none.
int free_port(boost::asio::io_context& io) {
  using boost::asio::ip::tcp;
  boost::system::error_code error;
  tcp::acceptor acceptor(io);
  acceptor.open(tcp::v4(), error);
  if (!error) acceptor.bind(tcp::endpoint(tcp::v4(), 0), error);
  return error ? 0 : acceptor.local_endpoint(error).port();
}

}  // namespace

CoordinatorShell::CoordinatorShell(boost::asio::io_context& io, core::CoordinatorSettings settings)
    : io_(io), core_(settings), timer_(io) {}

void CoordinatorShell::add_agent(const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
  net::CoordinatorLink::Handlers handlers;
  const std::uint64_t number = ++links_;
  handlers.on_message = [this, node, number](cluster::FromAgent message) {
    on_agent(node, number, std::move(message));
  };
  handlers.on_closed = [this, node, number](const std::string&) { on_agent_closed(node, number); };
  link->start(std::move(handlers));
  arriving_[number] = std::move(link);
}

/// A refusal stands in front of everything else, so that answers to a first message go where it came from.
void CoordinatorShell::on_agent(const NodeId& node, std::uint64_t number, cluster::FromAgent message) {
  auto arriving = arriving_.extract(number);
  const auto known = agents_.find(node);
  if (arriving.empty() && (known == agents_.end() || known->second.number != number)) return;
  core::CoordinatorCommands commands;
  core_.on(process::monotonic_now(), core::coordinator_event::FromAgent{node, std::move(message)}, commands);
  const auto* refused =
      commands.empty() ? nullptr : std::get_if<core::coordinator_command::RefuseAgent>(&commands.front());
  if (!arriving.empty() && refused != nullptr) {
    if (on_refused) on_refused(node, refused->reason);
    return arm_timer();  // Its link goes with `arriving`.
  }
  // A former one of this node goes, without another word.
  if (!arriving.empty()) agents_[node] = {number, std::move(arriving.mapped())};
  for (const core::CoordinatorCommand& command : commands) carry_out(command);
  arm_timer();
}

void CoordinatorShell::on_agent_closed(const NodeId& node, std::uint64_t number) {
  if (arriving_.erase(number) > 0) return;
  const auto known = agents_.find(node);
  if (known == agents_.end() || known->second.number != number) return;
  agents_.erase(known);
  on_event(core::coordinator_event::AgentClosed{node});
}

std::string CoordinatorShell::order(const NodeId& node, const core::NodeOrder& order) {
  const std::string why_not = core_.why_not(node, order);
  if (why_not.empty()) on_event(core::coordinator_event::NodeOrdered{node, order});
  return why_not;
}

core::Explanation CoordinatorShell::explain(const core::RunDefinition& run) const {
  return core_.explain(process::monotonic_now(), run);
}

void CoordinatorShell::submit(core::RunDefinition run, std::unique_ptr<storage::RunDirectory> directory,
                              RunObserver observer) {
  Run& entry = runs_[run.id];
  entry.directory = std::move(directory);
  entry.observer = std::move(observer);
  on_event(core::coordinator_event::Submitted{std::move(run)});
}

void CoordinatorShell::request_stop(const RunId& run, const core::StopRequest& request) {
  on_event(core::coordinator_event::StopRequested{run, request});
}

std::optional<core::RunSnapshot> CoordinatorShell::snapshot(const RunId& run) const {
  return core_.snapshot(process::monotonic_now(), run);
}

void CoordinatorShell::stop() {
  timer_.cancel();
}

void CoordinatorShell::on_event(const core::CoordinatorEvent& event) {
  core::CoordinatorCommands commands;
  core_.on(process::monotonic_now(), event, commands);
  for (const core::CoordinatorCommand& command : commands) carry_out(command);
  arm_timer();
}

void CoordinatorShell::carry_out(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  if (const auto* send = std::get_if<SendToAgent>(&command)) {
    // Without a link it is told with everything else when the node is back.
    if (const auto agent = agents_.find(send->node); agent != agents_.end())
      agent->second.link->send(send->message);
  } else if (const auto* refused = std::get_if<RefuseAgent>(&command)) {
    agents_.erase(refused->node);
    if (on_refused) on_refused(refused->node, refused->reason);
  } else if (const auto* forgotten = std::get_if<ForgetRun>(&command)) {
    runs_.erase(forgotten->run);
  } else if (const auto* reserve = std::get_if<ReservePort>(&command)) {
    reserve_port(reserve->run, reserve->generation);
  } else if (const auto* event = std::get_if<RecordEvent>(&command)) {
    Run& run = runs_.at(event->run);
    check_written(run, run.directory->append_event(event->event));
    run.observer.on_event(event->event);
  } else if (const auto* metrics = std::get_if<RecordMetrics>(&command)) {
    Run& run = runs_.at(metrics->run);
    check_written(run, run.directory->append_metrics(metrics->metrics));
    run.observer.on_metrics(metrics->metrics);
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command)) {
    runs_.at(keep->run).directory->keep_checkpoints(keep->paths);
  } else if (const auto* warning = std::get_if<Warn>(&command)) {
    runs_.at(warning->run).observer.on_warning(warning->message);
  } else if (const auto* finished = std::get_if<FinishRun>(&command)) {
    Run& run = runs_.at(finished->run);
    check_written(run, run.directory->write_summary(finished->outcome));
    run.directory->unlink_control_socket();
    run.observer.on_finished(finished->outcome);
  }
}

void CoordinatorShell::reserve_port(const RunId& run, Generation generation) {
  const int port = free_port(io_);
  boost::asio::post(io_, [this, run, generation, port] {
    on_event(core::coordinator_event::PortReserved{run, generation, port});
  });
}

void CoordinatorShell::check_written(Run& run, const Status& status) const {
  if (status || run.write_failed) return;
  run.write_failed = true;
  run.observer.on_warning(status.error().message + "; the run goes on without");
}

void CoordinatorShell::arm_timer() {
  const std::optional<TimePoint> next = core_.next_wakeup();
  if (next == armed_) return;
  armed_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_at(*next);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    armed_.reset();
    on_event(core::coordinator_event::Tick{});
  });
}

}  // namespace sgd::coordinator
