#include "launcher/http/request_reader.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace sgd::http {
namespace {

namespace beast = boost::beast::http;

constexpr std::string_view kEnd = "\r\n\r\n";
constexpr int kBadRequest = 400;
constexpr int kContentTooLarge = 413;
constexpr int kHeaderTooLarge = 431;

Error refusal_of(const boost::system::error_code& error) {
  if (error == beast::error::body_limit || error == beast::error::unexpected_body)
    return Error{"a request may have no body", kContentTooLarge};
  if (error == beast::error::header_limit)
    return Error{fmt::format("the header has more than {} bytes", kHeaderBytesMax), kHeaderTooLarge};
  return Error{"not an HTTP request: " + error.message(), kBadRequest};
}

Result<std::optional<Request>> parse(std::string_view header) {
  beast::request_parser<beast::empty_body> parser;
  parser.header_limit(kHeaderBytesMax);
  parser.body_limit(0);
  // The start line and the fields are two steps of this parser.
  for (boost::system::error_code error; !parser.is_header_done();) {
    const std::size_t taken = parser.put(boost::asio::buffer(header.data(), header.size()), error);
    if (error && error != beast::error::need_more) return refusal_of(error);
    if (taken == 0 && !parser.is_header_done()) return Error{"not an HTTP request: it ends too early", kBadRequest};
    header.remove_prefix(taken);
    error = {};
  }
  if (parser.chunked() || parser.content_length().value_or(0) > 0)
    return Error{"a request may have no body", kContentTooLarge};
  const auto& message = parser.get();
  if (static_cast<std::size_t>(std::distance(message.begin(), message.end())) > kHeaderFieldsMax)
    return Error{fmt::format("more than {} header fields", kHeaderFieldsMax), kHeaderTooLarge};
  const std::string_view target(message.target().data(), message.target().size());
  return std::optional<Request>(Request{std::string(message.method_string()),
                                        std::string(target.substr(0, target.find('?'))), message.keep_alive()});
}

}  // namespace

void RequestReader::append(std::string_view bytes) {
  buffer_.append(bytes);
}

Result<std::optional<Request>> RequestReader::next() {
  // Blank lines before a request are allowed (RFC 9112, 2.2): some clients send one too many.
  buffer_.erase(0, std::min(buffer_.find_first_not_of("\r\n"), buffer_.size()));
  // Another protocol is answered at once, not at the deadline: a method begins with a letter.
  const char first = buffer_.empty() ? 'G' : buffer_.front();
  if ((first < 'A' || first > 'Z') && (first < 'a' || first > 'z')) return Error{"not an HTTP request", kBadRequest};
  // Not from the start: a header that arrives byte by byte would be read over and over.
  const std::size_t end = std::string_view(buffer_).substr(0, kHeaderBytesMax).find(kEnd, searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size() - std::min(buffer_.size(), kEnd.size() - 1);
    if (buffer_.size() >= kHeaderBytesMax) return refusal_of(beast::error::header_limit);
    return std::optional<Request>();
  }
  Result<std::optional<Request>> request = parse(std::string_view(buffer_).substr(0, end + kEnd.size()));
  buffer_.erase(0, end + kEnd.size());
  searched_ = 0;
  return request;
}

}  // namespace sgd::http
