#include "test/unit/launcher/tls_test_support.hpp"

#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/messages/frame.hpp"
#include "common/messages/hello.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"

namespace sgd::test {

using boost::asio::ip::tcp;

std::string json_frame(const std::string& text) {
  return encode_frame(FrameKind::kJson, text);
}

std::string own_hello() {
  return json_frame(hello::encode({}));
}

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string Cluster::identity(net::Role role, const std::string& name, bool is_admin) {
  return identity(role, name, is_admin, Validity{});
}

std::string Cluster::identity(net::Role role, const std::string& name, bool is_admin, Validity validity) {
  const std::string place = folder.path() + "/" + std::to_string(++made_);
  net::IdentityFiles files;
  files.key = net::make_key();
  files.ca = ca.certificate();
  const net::Grant grant{role, name, is_admin, {}};
  files.certificate =
      ca.issue(net::make_request(files.key).value(), grant, unix_now_s() + validity.from_now_s, validity.valid_s)
          .value();
  REQUIRE(net::save_identity(place, files).ok());
  return place;
}

std::shared_ptr<const net::TlsContext> Cluster::context(net::Role role, const std::string& name, bool is_admin) {
  return net::TlsContext::load(identity(role, name, is_admin)).value();
}

Cluster& shared_cluster() {
  static Cluster cluster;
  return cluster;
}

RawPeer::RawPeer(boost::asio::io_context& io, int port, const std::shared_ptr<const net::TlsContext>& tls,
                 std::function<void()> turn)
    : socket_(io), turn_(std::move(turn)) {
  socket_.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)});
  socket_.non_blocking(true);
  stream_ = tls ? tls->make_stream(socket_.native_handle(), net::TlsSide::kDials)
                : net::make_plain_stream(socket_.native_handle());
}

std::string RawPeer::handshake() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    const net::IoOutcome outcome = stream_->handshake();
    if (outcome.state == net::IoState::kDone) return {};
    if (outcome.state == net::IoState::kError) return outcome.reason;
    if (outcome.state == net::IoState::kEof) return "closed";
    turn_();
  }
  return "no end of the handshake";
}

bool RawPeer::write(std::string_view bytes) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!bytes.empty()) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    const net::IoOutcome outcome = stream_->write({&bytes, 1});
    if (outcome.state == net::IoState::kDone)
      bytes.remove_prefix(outcome.bytes);
    else if (outcome.state == net::IoState::kError || outcome.state == net::IoState::kEof)
      return false;
    else
      turn_();
  }
  return true;
}

std::string RawPeer::read_until_end() {
  std::string all;
  std::array<char, 4096> some;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    const net::IoOutcome outcome = stream_->read(some);
    if (outcome.state == net::IoState::kDone)
      all.append(some.data(), outcome.bytes);
    else if (outcome.state == net::IoState::kEof || outcome.state == net::IoState::kError) {
      end_ = outcome.state == net::IoState::kEof ? "closed" : outcome.reason;
      return all;
    } else
      turn_();
  }
  end_ = "still open";
  return all;
}

void RawPeer::close() {
  socket_.close();
}

}  // namespace sgd::test
