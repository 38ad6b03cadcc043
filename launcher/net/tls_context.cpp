#include "launcher/net/tls_context.hpp"

#include <array>
#include <chrono>
#include <utility>

#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/openssl.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/tls_stream.hpp"
#include "launcher/net/tls_verify.hpp"

namespace sgd::net {
namespace {

constexpr long kCertificateBytesMax = 16 << 10;  // All that a peer shows; it is read before we know who it is.

using Stamps = std::array<FileStamp, 3>;

Stamps stamps_of(const std::string& folder) {
  return {stamp_of(identity_file(folder)), stamp_of(ca_file(folder)), stamp_of(revoked_file(folder))};
}

/// Everything that is the same with and without an identity.
ContextPtr make_context() {
  // No openssl.cnf: what is said here holds on every machine.
  SGD_ASSERT(OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1);
  ContextPtr context(SSL_CTX_new(TLS_method()));
  SSL_CTX* raw = context.get();
  SGD_ASSERT(raw != nullptr && SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) == 1 &&
             SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) == 1);
  SGD_ASSERT(SSL_CTX_set_ciphersuites(
                 raw, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384") == 1 &&
             SSL_CTX_set1_groups_list(raw, "X25519:P-256") == 1 && SSL_CTX_set1_sigalgs_list(raw, "ECDSA+SHA256") == 1);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SGD_ASSERT(SSL_CTX_set_num_tickets(raw, 0) == 1);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  // Buffers of 16 KiB each way exist only while bytes are in them; a read takes what has come in one call.
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_max_cert_list(raw, kCertificateBytesMax);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_verify_depth(raw, 0);  // The authority signs everybody itself.
  SSL_CTX_set_cert_verify_callback(raw, verify_peer, nullptr);
  return context;
}

Status use(SSL_CTX* context, const IdentityFiles& files, const PeerIdentity& own) {
  const Result<CertificatePtr> certificate = parse_certificate(files.certificate, "the identity");
  const Result<KeyPtr> key = parse_key(files.key, "the identity");
  const Result<CertificatePtr> ca = parse_certificate(files.ca, "ca.pem");
  if (!certificate) return certificate.error();
  if (!key) return key.error();
  if (!ca) return ca.error();
  if (SSL_CTX_use_certificate(context, certificate.value().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.value().get()) != 1 ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.value().get()) != 1)
    return openssl_error("cannot use the identity");
  // Whoever joins knows the authority by its key's digest alone, and must be shown it.
  if (own.role == Role::kCoordinator && SSL_CTX_add1_chain_cert(context, ca.value().get()) != 1)
    return openssl_error("cannot use the CA's certificate");
  return {};
}

}  // namespace

/// One state of the folder.
struct TlsContext::Files {
  Stamps stamps;
  ContextPtr context;
  PeerIdentity own;
  RevokedList revoked;

  [[nodiscard]] static Result<std::shared_ptr<const Files>> read(const std::string& folder) {
    auto files = std::make_shared<Files>();
    files->stamps = stamps_of(folder);  // First: a change while we read is seen the next time.
    const Result<IdentityFiles> identity = load_identity(folder);
    if (!identity) return identity.error();
    Result<PeerIdentity> own = identity_in(identity.value().certificate);
    if (!own) return Error{identity_file(folder) + ": " + own.error().message};
    Result<RevokedList> revoked = RevokedList::load(folder);
    if (!revoked) return revoked.error();
    files->own = std::move(own).value();
    files->revoked = std::move(revoked).value();
    files->context = make_context();
    if (const Status used = use(files->context.get(), identity.value(), files->own); !used)
      return Error{folder + ": " + used.error().message};
    return std::shared_ptr<const Files>(std::move(files));
  }
};

TlsContext::TlsContext(std::string folder) : folder_(std::move(folder)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const std::string& identity_folder) {
  Result<std::shared_ptr<const Files>> files = Files::read(identity_folder);
  if (!files) return files.error();
  std::shared_ptr<TlsContext> context(new TlsContext(identity_folder));
  context->files_ = std::move(files).value();
  return std::shared_ptr<const TlsContext>(std::move(context));
}

std::shared_ptr<const TlsContext> TlsContext::for_joining(const Digest& ca_key) {
  std::shared_ptr<TlsContext> context(new TlsContext({}));
  context->pinned_ca_key_ = std::make_shared<const Digest>(ca_key);
  auto files = std::make_shared<Files>();
  files->context = make_context();
  context->files_ = std::move(files);
  return context;
}

std::unique_ptr<Stream> TlsContext::make_stream(int fd, TlsSide side) const {
  (void)refresh();  // Ignoring: with damaged files those from before stay in force, and refresh() tells its
                    // callers.
  SslPtr ssl(SSL_new(files_->context.get()));
  SGD_ASSERT(ssl != nullptr);
  return make_tls_stream(shared_from_this(), std::move(ssl), fd, side, pinned_ca_key_.get());
}

const PeerIdentity& TlsContext::own() const {
  return files_->own;
}

bool TlsContext::is_revoked(const PeerIdentity& identity) const {
  return files_->revoked.contains(identity);
}

Status TlsContext::refresh() const {
  if (folder_.empty()) return {};
  looked_at_ = std::chrono::steady_clock::now();
  if (stamps_of(folder_) == files_->stamps) return {};
  Result<std::shared_ptr<const Files>> files = Files::read(folder_);
  if (!files) return files.error();
  files_ = std::move(files).value();
  ++version_;
  return {};
}

void TlsContext::refresh_soon() const {
  if (std::chrono::steady_clock::now() - looked_at_ < kLook) return;
  (void)refresh();  // Ignoring: see make_stream().
}

}  // namespace sgd::net
