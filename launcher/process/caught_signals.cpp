#include "launcher/process/caught_signals.hpp"

#include <csignal>

namespace sgd::process {
namespace {

bool is_of_terminal(int signal) {
  return signal == SIGINT || signal == SIGQUIT || signal == SIGHUP;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

void catch_signals(boost::asio::signal_set& heard, std::initializer_list<int> signals) {
  for (const int signal : signals)
    if (!is_of_terminal(signal) || !is_ignored(signal)) heard.add(signal);
}

}  // namespace sgd::process
