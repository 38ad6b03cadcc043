#include "launcher/coordinator/job_files.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/messages/transfer.hpp"
#include "launcher/shipping/file_set.hpp"
#include "launcher/storage/private_folder.hpp"

namespace sgd::coordinator {
namespace {

using Json = ClientService::Json;

struct WantedFile {
  std::string sha256;
  std::int64_t bytes = 0;
};

/// No two owners share a name, and none can be a path.
std::string folder_name(const Requester& who) {
  if (who.name.empty()) return "unproved";
  return "of-" + (transfer::is_part(who.name) ? who.name : "-" + shipping::sha256_of(who.name));
}

/// May throw: a value of a client's has a wrong type.
std::vector<WantedFile> wanted_of(const nlohmann::json& request) {
  std::vector<WantedFile> wanted;
  for (const nlohmann::json& file : request.at("files"))
    wanted.push_back({file.at("sha256").get<std::string>(), file.at("bytes").get<std::int64_t>()});
  return wanted;
}

std::string fault_of(const std::vector<WantedFile>& wanted) {
  if (wanted.size() > shipping::FileSet::kFilesMax + 1)
    return fmt::format("a job brings at most {} files", shipping::FileSet::kFilesMax);
  const bool is_possible = std::all_of(wanted.begin(), wanted.end(), [](const WantedFile& file) {
    return shipping::is_sha256(file.sha256) && file.bytes >= 0 && file.bytes < std::int64_t{1} << 50;
  });
  return is_possible ? "" : "a file has no hash, or an impossible size";
}

struct FileLookup {
  Json missing = Json::array();
  std::string no_room;
};

Result<FileLookup> look_up(const shipping::FileStore& store, const std::vector<WantedFile>& wanted) {
  FileLookup lookup;
  std::uint64_t bytes = 0;
  for (const WantedFile& file : wanted) {
    if (store.has(file.sha256, file.bytes)) continue;
    lookup.missing.push_back({{"sha256", file.sha256}, {"have", store.held(file.sha256).bytes}});
    bytes += static_cast<std::uint64_t>(file.bytes);
  }
  if (bytes > 0) lookup.no_room = store.why_no_room(bytes);
  return lookup;
}

}  // namespace

Result<std::shared_ptr<shipping::FileStore>> JobFiles::Stores::of(const Requester& who) {
  const std::string name = folder_name(who);
  const std::lock_guard lock(mutex);
  if (const auto known = by_name.find(name); known != by_name.end()) return known->second;
  if (const Status made = storage::make_private_folder(folder); !made) return made.error();
  auto opened = shipping::FileStore::open(folder + "/" + name, limits);
  if (!opened) return opened.error();
  // Those that nobody uses at the moment are opened again where they are needed.
  if (by_name.size() >= kOwnersMax) std::erase_if(by_name, [](const auto& one) { return one.second.use_count() == 1; });
  by_name[name] = opened.value();
  return opened;
}

/// `work` on the owner's thread, then `done`.
template <class Work, class Done>
void JobFiles::ask(const Requester& who, Duration limit, const ClientService::Reply& reply, Work work, Done done) {
  const std::string name = folder_name(who);
  if (!owners_.contains(name) && owners_.size() >= kOwnersMax) {
    const auto idle =
        std::find_if(owners_.begin(), owners_.end(), [](const auto& one) { return *one.second.asked == 0; });
    if (idle == owners_.end())
      return reply(refused("busy", fmt::format("files of {} owners come just now", kOwnersMax)));
    owners_.erase(idle);
  }
  Owner& owner = owners_[name];
  if (!owner.thread) owner.thread = std::make_unique<storage::FileThread>(io_);
  ++*owner.asked;
  // Counted until the work is over, also when the answer was not awaited; and by then this may be gone.
  const std::shared_ptr<void> place(nullptr, [asked = owner.asked](void*) { --*asked; });
  using Value = decltype(work());
  owner.thread->ask_within(
      limit, std::move(work), [done, place](Value value) { done(value); }, [place](Value) {});
}

void JobFiles::look(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const std::vector<WantedFile> wanted = wanted_of(request);
  if (const std::string fault = fault_of(wanted); !fault.empty()) return reply(refused("request", fault));
  const auto work = [stores = stores_, who, wanted]() -> Result<FileLookup> {
    const auto store = stores->of(who);
    return store ? look_up(*store.value(), wanted) : Result<FileLookup>(store.error());
  };
  ask(who, kDiskLimit, reply, work, [reply](const Result<FileLookup>& lookup) {
    if (!lookup) return reply(refused("state", lookup.error().message));
    if (!lookup.value().no_room.empty()) return reply(refused("quota", lookup.value().no_room));
    reply(Json{{"ok", true}, {"missing", lookup.value().missing}});
  });
}

/// What is damaged is gone, and may come once more.
void JobFiles::put(const Requester& who, const ClientService::Put& put, std::string bytes,
                   const ClientService::Reply& reply) {
  if (!shipping::is_sha256(put.sha256) || put.offset < 0 || put.offset >= std::int64_t{1} << 50)
    return reply(refused("request", "a file has no hash, or an impossible size"));
  struct Outcome {
    storage::Held held;
    Status proven;
  };
  const auto work = [stores = stores_, who, put, bytes = std::move(bytes)]() -> Result<Outcome> {
    const auto store = stores->of(who);
    if (!store) return store.error();
    Outcome outcome{store.value()->append(put.sha256, static_cast<std::uint64_t>(put.offset), bytes), {}};
    const storage::Held& held = outcome.held;
    const auto end = static_cast<std::uint64_t>(put.offset) + bytes.size();
    if (!put.is_last || !held.error.empty() || held.is_gap || held.is_stored) return outcome;
    if (held.bytes > end)
      outcome.proven = Error{fmt::format("{} bytes are here, and it has {}", held.bytes, end)};
    else
      outcome.proven = store.value()->prove(put.sha256);
    return outcome;
  };
  ask(who, put.is_last ? kProofLimit : kDiskLimit, reply, work, [reply](const Result<Outcome>& outcome) {
    if (!outcome) return reply(refused("state", outcome.error().message));
    const auto& [held, proven] = outcome.value();
    if (held.is_too_much) return reply(refused("quota", held.error));
    if (!held.error.empty()) return reply(refused("state", held.error));
    if (!proven) return reply(refused(proven.error().code == 0 ? "files" : "state", proven.error().message));
    Json answer = held.is_gap ? refused("gap", "bytes before these are missing") : Json{{"ok", true}};
    answer["have"] = held.bytes;
    reply(answer);
  });
}

}  // namespace sgd::coordinator
