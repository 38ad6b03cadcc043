#pragma once
// Signals that a program answers to. Those of a terminal, SIGINT, SIGQUIT and SIGHUP, may be set to be ignored by
// whoever starts it: by nohup, or by a script for what it runs in the background. That is kept, as POSIX has it.

#include <initializer_list>

#include <boost/asio/signal_set.hpp>

namespace sgd::process {

/// Adds `signals` to `heard`, without those of a terminal that are ignored.
void catch_signals(boost::asio::signal_set& heard, std::initializer_list<int> signals);

}  // namespace sgd::process
