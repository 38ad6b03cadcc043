#pragma once
// HTTP requests out of the bytes that a connection brings, for a server that answers GET and HEAD and takes
// no body. Boost.Beast parses; it is seen in the .cpp alone, since its headers cost 4 s a file. No socket
// here.
//
// What may wait to be parsed is limited before it is kept: kHeaderBytesMax of one request, plus one append().

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::http {

/// Request line and header fields of one request.
inline constexpr std::size_t kHeaderBytesMax = 8 << 10;
inline constexpr std::size_t kHeaderFieldsMax = 64;

struct Request {
  std::string method;       ///< As sent: "GET"; methods are case-sensitive.
  std::string path;         ///< Of the target, without its query.
  bool keep_alive = false;  ///< The client wants to send another one.
};

class RequestReader {
 public:
  void append(std::string_view bytes);
  /// The next whole request, nothing when more bytes are needed, or an error after which the stream is
  /// unusable; its code is the status of the answer: 400, 413 or 431.
  [[nodiscard]] Result<std::optional<Request>> next();
  /// Bytes of a request that is not whole yet, or of those behind the last one.
  [[nodiscard]] bool is_empty() const { return buffer_.empty(); }

 private:
  std::string buffer_;
  std::size_t searched_ = 0;  ///< No end of a header begins before it.
};

}  // namespace sgd::http
