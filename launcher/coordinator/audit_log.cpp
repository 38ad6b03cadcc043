#include "launcher/coordinator/audit_log.hpp"

#include "common/base/assert.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

Status AuditLog::open(const std::string& state_dir) {
  auto file = storage::LineFile::open(state_dir + "/audit.jsonl");
  if (!file) return file.error();
  file_.emplace(std::move(file).value());
  return {};
}

void AuditLog::add(const Requester& who, const std::string& action, const Json& about, const std::string& refused) {
  SGD_ASSERT(file_);
  Json line = {{"time", process::unix_seconds()},
               {"who", who.name.empty() ? "anybody" : who.name},
               {"certificate", who.certificate},
               {"peer", who.peer},
               {"action", action}};
  if (who.uid) line["uid"] = *who.uid;
  line.update(about);
  if (!refused.empty()) line["refused"] = refused;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (const Status written = file_->append(text); !written) on_trouble_("the audit log: " + written.error().message);
}

}  // namespace sgd::coordinator
