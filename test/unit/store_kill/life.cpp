#include "life.hpp"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/job/load.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/net/tcp_link.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::test {
namespace {

constexpr int kTogether = 3;  // Runs that are live at once; between two such groups none is.

class Coordinator {
 public:
  explicit Coordinator(const Life& life)
      : life_(life), shell_(io_, core::CoordinatorSettings{std::chrono::seconds(5)}) {}

  [[nodiscard]] Status run() {
    const Status opened = shell_.open_store(life_.folder + "/state", {});
    if (!opened) return opened;
    const Status restored = shell_.restore([this](const core::RunDefinition&) { return observer(); });
    if (!restored) return restored;
    auto listener = net::Listener::open(io_, {"127.0.0.1", life_.port});
    if (!listener) return listener.error();
    gateway_ = std::make_unique<net::Gateway>(io_, std::move(listener).value());
    net::Gateway::Handlers handlers;
    handlers.kinds[net::kAgentKind] = net::serve_agents(
        io_,
        [this](const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
          shell_.add_agent(node, std::move(link));
        },
        [](const std::string&, const net::Refusal&) {});
    gateway_->start(std::move(handlers));
    boost::asio::post(io_, [this] { go_on(); });
    io_.run();
    return {};
  }

 private:
  /// Every request from the first on, again in every life: those that are known must give the same run.
  void go_on() {
    if (!shell_.is_idle()) return look_later();
    if (next_ >= life_.runs) return io_.stop();
    for (int count = 0; count < kTogether && next_ < life_.runs; ++next_) {
      const bool is_known = shell_.run_of_request(request_name(next_)).has_value();
      count += is_known ? 0 : 1;
      submit(next_, is_known);
    }
    look_later();
  }
  void look_later() {
    timer_.expires_after(std::chrono::milliseconds(2));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) go_on();
    });
  }
  void submit(int number, bool is_known) {
    const std::string request = request_name(number);
    core::RunDefinition run;
    std::unique_ptr<storage::RunDirectory> directory;
    if (!is_known) {
      run.id = fmt::format("run-{:04}-{:08x}", number, process::random_seed().front() & 0xffffffff);
      run.run_dir = life_.folder + "/runs/" + run.id;
      nlohmann::json job = {{"name", "job"}, {"num_workers", 2}};
      if (number % 4 == 3)
        job["command"] = {"true"};
      else
        job["training"] = {
            {"batch_size", 8}, {"loss", "mse"}, {"model", {{"type", "linear"}}}, {"dataset", {{"type", "linear"}}}};
      run.job = *job::load_resolved(job).job;
      auto created = storage::RunDirectory::create({run.id, run.run_dir}, run.job.resolved);
      SGD_ASSERT(created.ok());
      directory = std::move(created).value();
    }
    run.request_id = request;
    shell_.submit(std::move(run), std::move(directory), observer(), [this, request](const Result<RunId>& id) {
      const std::string line = fmt::format("{} {}\n", request, id ? id.value() : "refused: " + id.error().message);
      SGD_ASSERT(::write(life_.report_fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    });
  }
  static coordinator::RunObserver observer() {
    return {{}, {}, [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); }, {}, {}};
  }

  Life life_;
  boost::asio::io_context io_{1};
  coordinator::CoordinatorShell shell_;
  std::unique_ptr<net::Gateway> gateway_;
  boost::asio::steady_timer timer_{io_};
  int next_ = 0;
};

}  // namespace

int live(const Life& life) {
  Coordinator coordinator(life);
  const Status status = coordinator.run();
  if (!status) fmt::print(stderr, "coordinator: {}\n", status.error().message);
  return status ? 0 : 1;
}

}  // namespace sgd::test
