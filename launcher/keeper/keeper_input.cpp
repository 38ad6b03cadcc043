// What comes from the keeper's own standard input, for the rank whose terminal is given it.

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/keeper/keeper.hpp"

namespace sgd::keeper {
namespace {

constexpr std::size_t kInputBytes = 4096;

}  // namespace

Keeper::Ranks::iterator Keeper::find_reader() {
  return std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank.second.has_typed_input && rank.second.state == RankProcess::State::kRunning;
  });
}

void Keeper::read_input() {
  char bytes[kInputBytes];
  const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  input_ended_ = count <= 0;
  input_ = input_ended_ ? std::string(kEndOfInput) : std::string(bytes, static_cast<std::size_t>(count));
}

void Keeper::pass_input() {
  const auto reader = find_reader();
  if (input_.empty()) return;
  if (reader == ranks_.end()) return input_.clear();
  input_.erase(0, reader->second.output.write_input(input_));
}

}  // namespace sgd::keeper
