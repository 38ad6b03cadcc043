#include "launcher/net/tls_verify.hpp"

#include <fmt/format.h>

#include "launcher/net/x509_identity.hpp"

namespace sgd::net {
namespace {

void free_stack(STACK_OF(X509) * certificates) {
  sk_X509_free(certificates);
}  // The certificates are others'.

std::string words_for(int error, X509* certificate) {
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the certificate of the other side has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the certificate of the other side is not valid yet: compare the two clocks";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:  // Ours have none: every certificate is signed by the authority
                                          // itself.
      return "the certificate of the other side is not of this cluster's authority";
    case X509_V_ERR_INVALID_PURPOSE: {
      const Result<PeerIdentity> identity = identity_of(certificate);
      if (identity.ok())
        return fmt::format("the other side is {} {}, not a coordinator", role_name(identity.value().role),
                           identity.value().name);
      break;
    }
    default:
      break;
  }
  return fmt::format("the certificate of the other side is refused: {}", X509_verify_cert_error_string(error));
}

/// The certificate among those that the peer has sent whose public key was pinned.
X509* find_pinned(STACK_OF(X509) * sent, const Digest& ca_key) {
  for (int index = 0; index < sk_X509_num(sent); ++index) {
    X509* certificate = sk_X509_value(sent, index);
    if (equal_in_constant_time(public_key_digest(certificate), ca_key)) return certificate;
  }
  return nullptr;
}

RefusalKind kind_of(int error) {
  const bool is_of_time = error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  if (error == X509_V_ERR_CERT_REVOKED) return RefusalKind::kRevoked;
  if (error == X509_V_ERR_INVALID_PURPOSE) return RefusalKind::kWrongRole;
  return is_of_time ? RefusalKind::kExpired : RefusalKind::kUntrusted;
}

int refuse(X509_STORE_CTX* store, PeerCheck& check, int error, std::string reason) {
  X509_STORE_CTX_set_error(store, error);
  check.kind = kind_of(error);
  check.refusal = std::move(reason);
  return 0;
}

}  // namespace

int verify_peer(X509_STORE_CTX* store, void*) {
  const auto* ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  PeerCheck& check = *static_cast<PeerCheck*>(SSL_get_app_data(ssl));
  check.found = {};
  std::unique_ptr<STACK_OF(X509), Freed<free_stack>> trusted;
  if (check.pinned_ca_key != nullptr) {
    X509* authority = find_pinned(X509_STORE_CTX_get0_untrusted(store), *check.pinned_ca_key);
    if (authority == nullptr)
      return refuse(store, check, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
                    "this is not the cluster that made the token: a wrong address, or somebody in between");
    trusted.reset(sk_X509_new_null());
    SGD_ASSERT(trusted != nullptr && sk_X509_push(trusted.get(), authority) > 0);
    X509_STORE_CTX_set0_trusted_stack(store, trusted.get());
  }
  X509* certificate = X509_STORE_CTX_get0_cert(store);
  if (X509_verify_cert(store) != 1) {
    check.kind = kind_of(X509_STORE_CTX_get_error(store));
    check.refusal = words_for(X509_STORE_CTX_get_error(store), certificate);
    return 0;
  }
  Result<PeerIdentity> identity = identity_of(certificate);
  if (!identity) return refuse(store, check, X509_V_ERR_APPLICATION_VERIFICATION, identity.error().message);
  PeerIdentity& found = identity.value();
  if (check.side == TlsSide::kDials && found.role != Role::kCoordinator)
    return refuse(store, check, X509_V_ERR_INVALID_PURPOSE,
                  fmt::format("the other side is {} {}, not a coordinator", role_name(found.role), found.name));
  if (check.context->is_revoked(found))
    return refuse(store, check, X509_V_ERR_CERT_REVOKED, fmt::format("{} is revoked", describe(found)));
  check.found = std::move(found);
  return 1;
}

}  // namespace sgd::net
