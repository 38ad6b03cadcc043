#include "launcher/cli/cluster_client.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/net/client_link.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/tls_words.hpp"
#include "launcher/net/wall_clock.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kDeadline = std::chrono::seconds(15);
constexpr const char* kAddressVariable = "SGD_ADDRESS";

}  // namespace

std::string user_configuration_file() {
  const char* base = std::getenv("XDG_CONFIG_HOME");
  if (base != nullptr && *base != '\0') return std::string(base) + "/sgd-launch/config.json";
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.config/sgd-launch/config.json";
}

namespace {

/// The file's "address"; empty without a file, or without the key.
std::string configured_address(Diagnostics& diagnostics) {
  const std::string path = user_configuration_file();
  const Result<std::string> text = json::text_of_file(path);
  if (!text) return {};
  const Json json = Json::parse(text.value(), nullptr, false, true);
  if (!json.is_object()) {
    diagnostics.error(path, 0, 0, "no JSON object");
    return {};
  }
  const auto address = json.find("address");
  if (address == json.end()) return {};
  if (address->is_string()) return read_or(json, "address", "");
  diagnostics.error(path, 0, 0, "\"address\" must be a text, as \"node1:7070\" is");
  return {};
}

}  // namespace

Option address_option(std::string& given) {
  return {{"--address"},
          "ADDRESS",
          "the coordinator: HOST:PORT, unix:PATH; auto: the one on this machine; local: none",
          kAddressVariable,
          [&given](const std::string& text) {
            given = text;
            return text.empty() ? std::string("expected HOST:PORT, unix:PATH, auto or local") : std::string();
          }};
}

std::optional<net::Address> parse_address(const std::string& text) {
  const std::string_view scheme = net::kUnixScheme;
  if (text.starts_with(scheme)) {
    const std::string path = text.substr(scheme.size());
    return path.empty() ? std::nullopt : std::optional(net::Address{{}, 0, absolute(path)});
  }
  std::string host = text;
  int port = net::kDefaultPort;
  const std::size_t colon = text.rfind(':');
  const bool is_bracketed = text.starts_with('[');
  const bool has_port = colon != std::string::npos && (is_bracketed ? text.find(']') < colon : text.find(':') == colon);
  if (has_port) {
    const auto number = whole_number(text.substr(colon + 1));
    if (!number || *number < 0 || *number > 65535) return std::nullopt;
    port = *number;
    host = text.substr(0, colon);
  }
  if (is_bracketed) {
    if (!host.ends_with(']')) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || host.find_first_of(" \t/") != std::string::npos) return std::nullopt;
  return net::Address{host, port};
}

net::Address local_coordinator(const std::string& identity_dir) {
  std::error_code error;
  const std::string socket = net::coordinator_socket(usual_coordinator_state_dir());
  const bool has_identity = std::filesystem::exists(net::identity_file(identity_dir), error);
  if (has_identity && !std::filesystem::exists(socket, error)) return {"127.0.0.1", net::kDefaultPort};
  return {{}, 0, socket};
}

namespace {

/// Who said `given`: the option, its variable, or the file.
std::string source_of_address(const std::string& given) {
  if (given.empty()) return user_configuration_file();
  const char* variable = std::getenv(kAddressVariable);
  return variable != nullptr && given == variable ? kAddressVariable : "--address";
}

}  // namespace

std::optional<net::Address> cluster_address(const std::string& given, Diagnostics& diagnostics) {
  const std::string text = given.empty() ? configured_address(diagnostics) : given;
  if (text.empty() || text == "local") return std::nullopt;
  if (text == "auto") return local_coordinator(user_identity_dir());
  auto address = parse_address(text);
  if (!address)
    diagnostics.error(source_of_address(given), 0, 0,
                      fmt::format("expected HOST:PORT, unix:PATH, auto or local, got \"{}\"", text));
  return address;
}

namespace {

std::string how_to_join(const net::Address& coordinator) {
  return fmt::format(
      "ask an admin for a token (sgd-launch token create --role client --name NAME), then sgd-launch join {} "
      "--token-file FILE",
      to_text(coordinator));
}

}  // namespace

Result<std::shared_ptr<const net::TlsContext>> user_tls(const net::Address& coordinator) {
  if (coordinator.is_local_socket()) return std::shared_ptr<const net::TlsContext>();
  auto tls = net::TlsContext::load(user_identity_dir());
  const bool is_missing = !tls && tls.error().code == ENOENT;
  if (is_missing && !net::is_loopback(coordinator))
    return Error{fmt::format("you have no identity for {}: {}", to_text(coordinator), how_to_join(coordinator))};
  if (is_missing) return std::shared_ptr<const net::TlsContext>();
  return tls;
}

std::string no_coordinator(const net::Address& address, const std::string& reason) {
  const std::string place = to_text(address);
  if (reason.starts_with(net::kWantsIdentity))
    return fmt::format("the coordinator at {} wants an identity, and you have none: {}", place, how_to_join(address));
  // It answers: whoever looks for a firewall looks in the wrong place.
  if (const std::string_view refused = net::kCertificateRefused; reason.starts_with(refused)) {
    const bool is_of_time = reason.find(net::kValidFrom) != std::string::npos;
    return fmt::format("the coordinator at {} refuses this side's certificate{}{}", place,
                       reason.substr(refused.size()),
                       is_of_time ? ", and here it is " + net::utc_in_words(net::unix_now_s()) : "");
  }
  if (reason.starts_with("the certificate of the other side "))
    return fmt::format("the coordinator at {}: {}", place, reason);
  const std::string again = fmt::format("cannot reach {}: ", place);
  return fmt::format("no coordinator at {}: {}", place,
                     reason.starts_with(again) ? reason.substr(again.size()) : reason);
}

namespace {

/// Where somebody listens, whatever they say, the reason is another.
bool is_nobody(const std::string& reason) {
  return reason.starts_with("cannot reach ");
}

}  // namespace

Result<net::Address> coordinator_here() {
  const net::Address here = local_coordinator(user_identity_dir());
  const auto answer = ask_cluster(here, {{"request", "ps"}, {"all", false}});
  if (!answer) return answer.error();
  return here;
}

Result<Json> ask_cluster(const net::Address& address, Json request) {
  auto tls = user_tls(address);
  if (!tls) return tls.error();
  return ask_cluster(address, std::move(tls).value(), std::move(request));
}

Result<Json> ask_cluster(const net::Address& address, std::shared_ptr<const net::TlsContext> tls, Json request) {
  boost::asio::io_context io{1};
  net::ClientLink link(io, address, core::Random(process::random_seed()), std::move(tls));
  std::optional<Result<Json>> answer;
  Json whole = {{"type", "request"}, {"id", 1}};
  whole.update(request);
  link.start({[&] { link.send(whole); },
              [&](Json message) {
                if (read_or(message, "id", 0) == 1) answer = std::move(message);
              },
              [](const std::string&) {},
              [&](const std::string& reason) {
                if (!answer) answer = Error{no_coordinator(address, reason), is_nobody(reason) ? ENOENT : 0};
              }});
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!answer && std::chrono::steady_clock::now() < deadline) io.run_one_until(deadline);
  if (!answer)
    return Error{
        fmt::format("the coordinator at {} did not answer within {}", to_text(address), format_duration(kDeadline))};
  return std::move(*answer);
}

}  // namespace sgd::cli
