#include "launcher/core/peer_loss.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace sgd::core {
namespace {

/// Of Gloo, NCCL, PyTorch's stores, and the system.
constexpr std::array<std::string_view, 22> kWords = {
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Connection was likely closed",
    "Application timeout caused pair closure",
    "NCCL remote error",
    "ncclRemoteError",
    "remote process exited or there was a network error",
    "Watchdog caught collective operation timeout",
    "Broken pipe",
    "Timed out waiting",
    "Socket Timeout",
    "wait timeout after",
    "failed to recv, got 0 bytes",
    "Failed to recv",
    "recvValue failed",
    "sendBytes failed",
    "client socket has timed out",
    "Connection timed out",
    "Socket closed",
    "Rank is down",
    "peer is gone",
};
constexpr std::array<std::string_view, 6> kTypes = {"ConnectionResetError",
                                                    "BrokenPipeError",
                                                    "ConnectionRefusedError",
                                                    "ConnectionAbortedError",
                                                    "torch.distributed.DistNetworkError",
                                                    "DistNetworkError"};
constexpr std::array<std::string_view, 5> kProgramErrors = {"SyntaxError", "IndentationError", "TabError",
                                                            "ModuleNotFoundError", "ImportError"};
/// Of a Python that an exception has ended, and of one that cannot open its script.
constexpr int kUncaught = 1;
constexpr int kNoProgram = 2;
/// Behind the error there is at most what an interpreter or a wrapper says of its end.
constexpr std::size_t kLinesLooked = 5;

bool has_words(std::string_view text) {
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::string joined(const std::string& type, std::string_view message) {
  if (type.empty() || message.empty()) return type + std::string(message);
  return type + ": " + std::string(message);
}

template <std::size_t count>
bool is_one_of(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

/// What follows the first line may be of somebody else: it decides nothing.
bool is_peer_loss(const RankError& error) {
  return is_one_of(kTypes, error.type) || has_words(first_line(error.message));
}

bool tells_peer_loss(const std::vector<std::string>& tail) {
  const std::size_t first = tail.size() - std::min(tail.size(), kLinesLooked);
  return std::any_of(tail.begin() + static_cast<std::ptrdiff_t>(first), tail.end(), has_words);
}

bool is_beyond_restart(const RankError& error, int exit_code) {
  if (error.is_aside) return false;
  if (is_one_of(kProgramErrors, error.type)) return exit_code == kUncaught;
  return error.type == "FileNotFoundError" && error.message.starts_with("can't open file ") && exit_code == kNoProgram;
}

std::string words(const RankError& error) {
  return joined(error.type, first_line(error.message));
}

std::string whole_words(const RankError& error) {
  return joined(error.type, error.message);
}

}  // namespace sgd::core
