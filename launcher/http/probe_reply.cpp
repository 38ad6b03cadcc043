#include "launcher/http/probe_reply.hpp"

#include <fmt/format.h>

namespace sgd::http {
namespace {

constexpr const char* kPlain = "text/plain; charset=utf-8";
constexpr const char* kPrometheus = "text/plain; version=0.0.4; charset=utf-8";

const char* words_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

struct Answer {
  int status = 200;
  const char* type = kPlain;
  std::string body;
};

Answer probe(bool is_good, const std::string& reason) {
  if (is_good) return {200, kPlain, "ok\n"};
  return {503, kPlain, (reason.empty() ? "no reason is known" : reason) + "\n"};
}

Answer answer_to(const Request& request, const ProbeSources& sources) {
  if (request.method != "GET" && request.method != "HEAD") return {405, kPlain, "only GET and HEAD are served\n"};
  if (request.path == "/metrics") return {200, kPrometheus, sources.metrics()};
  if (request.path == "/healthz" || request.path == "/readyz") {
    const Health health = sources.health();
    return probe(request.path == "/healthz" ? health.is_alive : health.is_alive && health.is_ready, health.reason);
  }
  return {404, kPlain, "served here: /metrics /healthz /readyz\n"};
}

std::string text_of(const Answer& answer, bool keep_alive, bool with_body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}Connection: {}\r\n\r\n{}",
      answer.status, words_of(answer.status), answer.type, answer.body.size(),
      answer.status == 405 ? "Allow: GET, HEAD\r\n" : "", keep_alive ? "keep-alive" : "close",
      with_body ? answer.body : std::string());
}

}  // namespace

std::string reply_to(const Request& request, const ProbeSources& sources, bool keep_alive) {
  return text_of(answer_to(request, sources), keep_alive, request.method != "HEAD");
}

std::string refusal(int status, std::string_view reason) {
  return text_of({status, kPlain, std::string(reason) + "\n"}, false, true);
}

}  // namespace sgd::http
