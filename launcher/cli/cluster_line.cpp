#include "launcher/cli/cluster_line.hpp"

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/process/caught_signals.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {

ClusterLine::ClusterLine(net::Address coordinator, std::shared_ptr<const net::TlsContext> tls)
    : coordinator_(std::move(coordinator)),
      signals_(io_),
      link_(io_, coordinator_, core::Random(process::random_seed()), std::move(tls)) {
  process::catch_signals(signals_, {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2});
  catch_signals();
  link_.start({[this] { is_open_ = true; },
               [this](Json message) {
                 if (read_or(message, "id", 0) == asked_) answer_ = std::move(message);
               },
               [](const std::string&) {},
               [this](const std::string& reason) {
                 is_open_ = false;
                 why_not_ = reason;
               }});
}

void ClusterLine::catch_signals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    heard_.push_back(signal);
    catch_signals();
  });
}

template <class Done>
void ClusterLine::run_until(TimePoint deadline, const Done& done) {
  const std::size_t heard = heard_.size();
  for (TimePoint now = process::monotonic_now(); !done() && heard_.size() == heard && now < deadline;
       now = process::monotonic_now())
    io_.run_one_for(deadline - now);
}

Result<ClusterLine::Json> ClusterLine::ask(const Json& request, Duration limit) {
  const TimePoint deadline = process::monotonic_now() + limit;
  Json whole = {{"type", "request"}, {"id", ++asked_}};
  whole.update(request);
  answer_.reset();
  run_until(deadline, [this] { return is_open_; });
  if (is_open_) link_.send(whole);
  run_until(deadline, [this] { return answer_ || !is_open_; });
  if (answer_) return *std::exchange(answer_, std::nullopt);
  return Error{why_not_.empty() ? fmt::format("no answer within {}", format_duration(limit)) : why_not_};
}

void ClusterLine::wait(Duration time) {
  run_until(process::monotonic_now() + time, [] { return false; });
}

std::optional<int> ClusterLine::take_signal() {
  if (heard_.empty()) return std::nullopt;
  const int first = heard_.front();
  heard_.erase(heard_.begin());
  return first;
}

}  // namespace sgd::cli
