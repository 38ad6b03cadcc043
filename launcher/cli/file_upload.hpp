#pragma once
// Brings a job's files to the coordinator before the job: asks what is missing, and puts that, some pieces ahead of the
// answers. Begun anew with each connection; what has come stays.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/shipping/found_files.hpp"

namespace sgd::cli {

class FileUpload {
 public:
  static constexpr int kAhead = 4;           ///< Pieces without an answer.
  static constexpr int kDamagedMax = 2;      ///< Times that a file may be another one than it was.
  static constexpr int kBusyMax = 400;       ///< Answers in a row that take nothing; two minutes.
  static constexpr int kFirstNumber = 1000;  ///< Of its messages; those of others are smaller.

  using Json = nlohmann::ordered_json;
  struct Handlers {
    std::function<void(const Json& message, std::string_view bytes)> send;
    /// `bytes` were missing of `files` files. Once.
    std::function<void(std::size_t files, std::int64_t bytes)> on_done;
    std::function<void(const std::string& error, bool is_users)> on_failed;  ///< Last.
  };

  /// `rest`: from an answer that takes nothing to the next question.
  FileUpload(boost::asio::io_context& io, shipping::FoundFiles files, Handlers handlers,
             Duration rest = std::chrono::milliseconds(300));

  /// There is a connection, for the first time or again; or something has gone at the coordinator.
  void begin();
  /// False: the message is not about this.
  [[nodiscard]] bool on(const Json& message);
  [[nodiscard]] bool is_done() const { return is_done_; }
  /// What a submission says of it.
  [[nodiscard]] const std::string& name() const { return files_.sha256; }

 private:
  struct Missing {
    std::string sha256;
    std::int64_t bytes = 0;
    std::int64_t sent = 0;
    std::int64_t had = 0;  ///< Of it, before.
  };
  struct Sent {
    std::size_t file = 0;  ///< Of missing_.
    bool is_last = false;
  };

  void on_missing(const Json& answer);
  void on_put(const Sent& sent, const Json& answer);
  void send_more();
  [[nodiscard]] bool send_piece(std::size_t index);
  void begin_later(const Json& answer);
  void fail(const std::string& error, bool is_users);
  [[nodiscard]] Result<std::string> read(const Missing& file, std::size_t bytes) const;

  shipping::FoundFiles files_;
  Handlers handlers_;
  net::Timer again_;
  std::map<std::string, std::int64_t> sizes_;  ///< By hash.
  std::vector<Missing> missing_;
  std::size_t next_ = 0;  ///< Of missing_: what is sent now.
  std::map<int, Sent> unanswered_;
  std::optional<int> asked_;  ///< The number of the question what is missing.
  int number_ = kFirstNumber;
  std::size_t whole_ = 0;  ///< Files that were missing and are not.
  int damaged_ = 0;
  int busy_ = 0;
  Duration rest_;
  std::size_t put_files_ = 0;
  std::int64_t put_bytes_ = 0;
  bool is_done_ = false;
  bool is_over_ = false;
};

}  // namespace sgd::cli
