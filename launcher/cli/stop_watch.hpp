#pragma once
// How long a stop waits for the store. It is an event as any other: nothing follows from it before it is committed,
// which on a full disk may be never. Who has asked twice, or has waited for as long as trials have to end, does not
// wait for that any more.
//
//   on_stop() ──grace, or at once──> asks the store ──answered──> asks again, until cancel()
//                                        └── no answer in kPatience, or kTroubled where it says what it lacks ──>
//                                            on_given_up

#include <functional>
#include <string>
#include <utility>

#include "launcher/net/timer.hpp"

namespace sgd::cli {

class StopWatch {
 public:
  /// A disk that is only slow has answered by then.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  /// An error may be over at the store's next try.
  static constexpr Duration kTroubled = std::chrono::milliseconds(200);

  struct Handlers {
    /// Calls its argument when everything that was asked for so far is stored.
    std::function<void(std::function<void()>)> when_stored;
    /// Once. What keeps the store from it; empty: it does not answer.
    std::function<void(const std::string& trouble)> on_given_up;
  };

  /// `io` must outlive it, and it what calls the argument of `when_stored`.
  StopWatch(boost::asio::io_context& io, Handlers handlers) : handlers_(std::move(handlers)), timer_(io) {}

  /// Of the store: what keeps it from storing anything, and that it has stored something.
  void on_trouble(const std::string& what);
  void on_stored() { trouble_.clear(); }
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

  /// Somebody has asked for the end, which takes at most `grace`; `at_once`: and waits for nothing.
  void on_stop(Duration grace, bool at_once);
  [[nodiscard]] bool is_asked() const { return is_asked_; }
  void cancel() { timer_.cancel(); }

 private:
  void look();

  Handlers handlers_;
  net::Timer timer_;
  std::string trouble_;
  bool is_asked_ = false;    ///< For the end.
  bool is_waiting_ = false;  ///< For an answer of the store, for as long as it may take.
  bool is_stored_ = true;    ///< It has answered.
};

}  // namespace sgd::cli
