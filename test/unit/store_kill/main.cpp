// store_kill [--kills N] [--seed S]: a coordinator with a store is SIGKILLed at N random moments while nodes that live
// on play runs against it, and is started again; in the end nothing is lost or doubled, and the store is whole.
// store_kill --life FOLDER PORT RUNS FD is one of its lives.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <random>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "../store/scripted_agent.hpp"
#include "../store/state_folder.hpp"
#include "check.hpp"
#include "launcher/net/tcp_link.hpp"
#include "life.hpp"

using namespace sgd;

namespace {

constexpr auto kStandstill = std::chrono::seconds(60);  // Without any progress: a failure.
constexpr int kRunsMax = 9999;
constexpr unsigned kFactsMax = 200;  // That a life may take before it is killed.

class Killer {
 public:
  Killer(int kills, std::uint32_t seed) : kills_left_(kills), chance_(seed) {
    const auto listener = net::Listener::open(io_, {"127.0.0.1", 0});
    port_ = listener.value()->port();
  }

  [[nodiscard]] int run() {
    std::filesystem::create_directories(folder_.run(""));
    for (int index = 0; index < 2; ++index) {
      auto link = net::make_tcp_agent_link(io_, buffer_, {"127.0.0.1", port_},
                                           core::Random({1, 2, 3, static_cast<std::uint64_t>(index)}));
      agents_.push_back(std::make_unique<test::ScriptedAgent>(io_, std::move(link), fmt::format("node{}", index), 4,
                                                              static_cast<Incarnation>(index + 7), test::script_of));
      agents_.back()->start();
    }
    begin_life();
    io_.run();
    for (auto& agent : agents_) agent->stop();
    std::vector<std::string> found = std::move(found_);
    for (std::string& one : test::findings(root(), runs_)) found.push_back(std::move(one));
    for (const std::string& one : found) fmt::print(stderr, "{}\n", one);
    fmt::print("{} kills, {} runs, {} facts taken, {} findings\n", killed_, runs_.size(), taken(), found.size());
    if (found.empty()) fmt::print("All tests passed ({} kills in 1 test case)\n", killed_);
    return found.empty() ? 0 : 1;
  }

 private:
  [[nodiscard]] std::string root() const { return std::filesystem::path(folder_.state()).parent_path().string(); }
  [[nodiscard]] std::int64_t taken() const {
    std::int64_t sum = 0;
    for (const auto& agent : agents_) sum += agent->acknowledged();
    return sum;
  }

  void begin_life() {
    int report[2];
    SGD_ASSERT(::pipe(report) == 0);
    // Not before all kills are done does it run out of runs.
    const std::string runs = std::to_string(kills_left_ > 0 ? kRunsMax : static_cast<int>(runs_.size()) + 3);
    const std::string port = std::to_string(port_);
    const std::string fd = std::to_string(report[1]);
    const std::string folder = root();
    child_ = ::fork();
    SGD_ASSERT(child_ >= 0);
    if (child_ == 0) {
      const auto kept = static_cast<unsigned>(report[1]);
      (void)::close_range(3, kept - 1, 0);
      (void)::close_range(kept + 1, ~0U, 0);
      ::execl("/proc/self/exe", "store_kill", "--life", folder.c_str(), port.c_str(), runs.c_str(), fd.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(report[1]);
    reports_ = std::make_unique<boost::asio::posix::stream_descriptor>(io_, report[0]);
    text_.clear();
    read();
    last_progress_ = std::chrono::steady_clock::now();
    watch();
    if (kills_left_ > 0) kill_later();
  }
  /// A quarter of the lives end while they begin, the others somewhere in their work.
  void kill_later() {
    const bool is_short = chance_() % 4 == 0;
    kill_at_ = taken() + (is_short ? 0 : static_cast<std::int64_t>(1 + chance_() % kFactsMax));
    kill_when_due(std::chrono::microseconds(chance_() % (is_short ? 60'000 : 3'000)));
  }
  void kill_when_due(std::chrono::microseconds after) {
    kill_timer_.expires_after(after);
    kill_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      if (taken() < kill_at_) return kill_when_due(std::chrono::microseconds(chance_() % 2'000));
      ++killed_;
      --kills_left_;
      SGD_ASSERT(::kill(child_, SIGKILL) == 0);
    });
  }
  void read() {
    reports_->async_read_some(
        boost::asio::buffer(bytes_), [this](const boost::system::error_code& error, std::size_t count) {
          text_.append(bytes_, count);
          for (std::size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
            note(text_.substr(0, end));
          if (error) return end_life();
          read();
        });
  }
  /// "request-17 run-0017-89abcdef"
  void note(const std::string& line) {
    const int number = std::stoi(line.substr(std::strlen("request-")));
    const std::string run = line.substr(line.find(' ') + 1);
    const auto [known, is_new] = runs_.emplace(number, run);
    if (!is_new && known->second != run)
      found_.push_back(fmt::format("{} once was {}, and is {}", line, known->second, run));
  }
  void end_life() {
    int status = 0;
    SGD_ASSERT(::waitpid(child_, &status, 0) == child_);
    kill_timer_.cancel();
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (was_killed) return begin_life();
    if (status != 0) found_.push_back(fmt::format("a life ended with status {}", status));
    io_.stop();
  }
  void watch() {
    watch_timer_.expires_after(std::chrono::seconds(1));
    watch_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      const std::int64_t now_taken = taken();
      if (now_taken != seen_) last_progress_ = std::chrono::steady_clock::now();
      seen_ = now_taken;
      if (std::chrono::steady_clock::now() < last_progress_ + kStandstill) return watch();
      found_.push_back("nothing goes on any more");
      (void)::kill(child_, SIGKILL);
      io_.stop();
    });
  }

  boost::asio::io_context io_{1};
  test::StateFolder folder_;
  net::ReadBuffer buffer_;
  std::vector<std::unique_ptr<test::ScriptedAgent>> agents_;
  int port_ = 0;
  int kills_left_;
  int killed_ = 0;
  std::int64_t kill_at_ = 0;  ///< Facts taken.
  std::mt19937 chance_;
  pid_t child_ = -1;
  std::unique_ptr<boost::asio::posix::stream_descriptor> reports_;
  char bytes_[4096];
  std::string text_;
  std::map<int, std::string> runs_;
  std::vector<std::string> found_;
  boost::asio::steady_timer kill_timer_{io_};
  boost::asio::steady_timer watch_timer_{io_};
  std::chrono::steady_clock::time_point last_progress_;
  std::int64_t seen_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 5 && arguments[0] == "--life")
    return test::live({arguments[1], std::stoi(arguments[2]), std::stoi(arguments[3]), std::stoi(arguments[4])});
  int kills = 10;
  std::uint32_t seed = 1;
  for (std::size_t index = 0; index + 1 < arguments.size(); index += 2) {
    if (arguments[index] == "--kills") kills = std::stoi(arguments[index + 1]);
    if (arguments[index] == "--seed") seed = static_cast<std::uint32_t>(std::stoul(arguments[index + 1]));
  }
  return Killer(kills, seed).run();
}
