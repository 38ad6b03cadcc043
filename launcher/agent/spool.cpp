#include "launcher/agent/spool.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/checkpoint/manifest.hpp"
#include "launcher/shipping/run_tree.hpp"
#include "launcher/storage/private_folder.hpp"
#include "launcher/storage/remove_tree.hpp"

namespace sgd::agent {
namespace {

namespace fs = std::filesystem;

/// Beside the folder of the run: why it was refused, and a line for each visit since.
constexpr const char* kRefusedMark = ".refused-";
constexpr const char* kGone = ".gone-";  ///< Of folders that are being removed.
constexpr std::size_t kRemotesMax = 10'000;

/// `path` with `from` at its beginning replaced by `to`.
std::string moved(const std::string& path, const std::string& from, const std::string& to) {
  const bool is_below = path.size() > from.size() && path.starts_with(from) && path[from.size()] == '/';
  return is_below ? to + path.substr(from.size()) : path;
}

constexpr std::array<const char*, 3> kRunFolders{"logs", "errors", checkpoint::kDirectory};

bool is_own_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

/// It was made, and an agent ended before it gave it away; or it was just made.
bool is_to_give(const std::string& folder, const std::optional<storage::FileOwner>& owner) {
  return owner && owner->uid != ::geteuid() && is_own_folder(folder);
}

/// Nobody but us can change what has this name. What is in it goes first: until then nobody else gets in.
Status give_run_folder(const std::string& folder, const storage::FileOwner& owner) {
  std::vector<std::string> given;
  for (const char* name : kRunFolders)
    if (is_own_folder(folder + "/" + name)) given.push_back(folder + "/" + name);
  given.push_back(folder);
  for (const std::string& one : given)
    if (::lchown(one.c_str(), owner.uid, owner.gid) != 0) return system_error("cannot give " + one + " to its owner");
  return {};
}

/// A job may have closed its folder to itself (`chmod 000 .`): then nothing in it could be made, sent or removed.
void open_run_folder(const std::string& folder) {
  const storage::ScopedFileOwner as(storage::other_owner(folder));
  (void)storage::open_own_folder(AT_FDCWD, folder.c_str());  // Ignoring: whoever needs it finds out what is wrong.
  for (const char* name : kRunFolders) (void)storage::open_own_folder(AT_FDCWD, (folder + "/" + name).c_str());
}

/// By the mark of its refusal; nothing: it was not refused.
std::optional<std::int64_t> visits_since_refusal(const std::string& mark) {
  std::ifstream file(mark);
  if (!file) return std::nullopt;
  std::string line;
  std::getline(file, line);
  std::int64_t visits = 0;
  while (std::getline(file, line)) ++visits;
  return visits;
}

}  // namespace

Spool::Spool(boost::asio::io_context& io, Setup setup, core::Random random)
    : io_(io),
      setup_(std::move(setup)),
      runs_dir_(setup_.state_dir + "/runs"),
      trees_dir_(setup_.state_dir + "/files/runs"),
      folders_made_(static_cast<std::uint32_t>(random.next())),
      revisit_timer_(io),
      link_(io, setup_.coordinator, {setup_.node, setup_.incarnation}, random, setup_.tls),
      sending_(io),
      fetching_(io),
      bringing_(io),
      removing_(io),
      sender_(io, sending_, link_,
              {[this](const RunId& run) { remove(run); },
               [this](const RunId& run, const std::string& reason) { keep_for_later(run, reason); },
               [this](const std::string& message) { on_warning_(message); }},
              setup_.times),
      fetcher_(fetching_, link_),
      bringer_(bringing_, link_) {}

Spool::~Spool() = default;

Status Spool::start(std::function<void(std::string)> on_warning) {
  on_warning_ = std::move(on_warning);
  if (!transfer::is_part(setup_.node))
    return Error{fmt::format("\"{}\" cannot be a node's name: it may have letters, digits, \".\", \"_\" and \"-\"",
                             setup_.node)};
  if (const Status made = storage::make_private_folder(runs_dir_, storage::Others::kPass); !made) return made;
  if (const Status made = storage::make_private_folder(trees_dir_, storage::Others::kPass); !made) return made;
  if (const Status passable = let_owners_pass(); !passable) return passable;
  auto store = shipping::FileStore::open(setup_.state_dir + "/files/store", setup_.files);
  if (!store) return store.error();
  store_ = std::move(store).value();
  scan_folders(ScanReason::kStart);
  link_.start(
      {[this] {
         sender_.on_open();
         fetcher_.on_open();
         bringer_.on_open();
       },
       [this](transfer::ToNode message, std::string bytes) { on_message(std::move(message), std::move(bytes)); },
       [this](const std::string& reason) {
         sender_.on_lost();
         on_warning_("files: " + reason);
       }});
  return {};
}

void Spool::stop() {
  revisit_timer_.cancel();
  sender_.stop();
  link_.stop();
}

void Spool::on_message(transfer::ToNode message, std::string bytes) {
  if (const auto* have = std::get_if<transfer::Have>(&message)) return sender_.on(*have);
  if (const auto* stored = std::get_if<transfer::Stored>(&message)) return sender_.on(*stored);
  if (const auto* ship = std::get_if<transfer::Ship>(&message)) return sender_.on(*ship);
  if (const auto* keep = std::get_if<transfer::Keep>(&message)) return sender_.on(*keep);
  if (const auto* taken = std::get_if<transfer::Taken>(&message)) return sender_.on(*taken);
  if (const auto* listing = std::get_if<transfer::Listing>(&message)) return fetcher_of(listing->path).on(*listing);
  if (const auto* pending = std::get_if<transfer::Pending>(&message)) return fetcher_of(pending->path).on(*pending);
  if (const auto* data = std::get_if<transfer::Data>(&message))
    return fetcher_of(data->path).on(*data, std::move(bytes));
  if (const auto* refused = std::get_if<transfer::Refused>(&message)) {
    // A checkpoint that is fetched is not one that is brought.
    if (!fetcher_of(refused->path).on(*refused)) sender_.on(*refused);
  }
}

FileFetcher& Spool::fetcher_of(const std::string& path) {
  return path == transfer::kFilesFolder ? bringer_ : fetcher_;
}

// ---- paths ----

std::string Spool::mark_of(const RunId& run) const {
  return fmt::format("{}/{}{}", runs_dir_, kRefusedMark, run);
}

/// Owners get through our folders to theirs, and see nothing on the way.
Status Spool::let_owners_pass() const {
  if (!setup_.has_other_owners) return {};
  for (const std::string& folder : {setup_.state_dir, runs_dir_, setup_.state_dir + "/files", trees_dir_})
    if (::chmod(folder.c_str(), 0711) != 0) return system_error("cannot let owners of runs through " + folder);
  if (!storage::is_within_reach_of_all(runs_dir_))
    return Error{fmt::format("owners of runs cannot get to {}: a folder above it is closed to them; chmod o+x it, or "
                             "name another one with "
                             "--state-dir",
                             runs_dir_),
                 EACCES};
  return {};
}

Status Spool::make_folder(const RunId& run, const std::optional<storage::FileOwner>& owner) {
  const std::string folder = folder_of(run);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create " + folder);
  if (is_to_give(folder, owner))
    if (const Status given = give_run_folder(folder, *owner); !given) return given;
  open_run_folder(folder);
  const storage::ScopedFileOwner as(storage::other_owner(folder));
  std::error_code error;
  for (const char* name : kRunFolders) {
    fs::create_directories(folder + "/" + name, error);
    if (error) return Error{fmt::format("cannot create {}/{}: {}", folder, name, error.message()), error.value()};
  }
  auto files = storage::RunFiles::open(folder_of(run), setup_.quota);
  if (!files) return files.error();
  RunFolder& place = folders_[run];
  place.files = std::move(files).value();
  place.life = folders_made_++;
  return {};
}

Status Spool::open(const RunId& run, const std::optional<storage::FileOwner>& owner) {
  const auto known = folders_.find(run);
  // One that an earlier life has left may be live by now as ours: then it was opened before its owner was known.
  const bool is_left = is_to_give(folder_of(run), owner);
  if (known != folders_.end() && known->second.is_live && !is_left) return {};
  if (known == folders_.end() || is_left)
    if (const Status made = make_folder(run, owner); !made) return made;
  std::error_code ignored;
  fs::remove(mark_of(run), ignored);
  RunFolder& place = folders_.at(run);
  place.is_live = true;
  sender_.add(run, place.files);
  return {};
}

Result<std::optional<storage::FileOwner>> Spool::owner_of(const RunId& run) const {
  if (!setup_.has_other_owners) return std::optional<storage::FileOwner>();
  auto owner = storage::other_owner(folder_of(run));
  if (!owner) return Error{fmt::format("{} is no other user's", folder_of(run))};
  return owner;
}

cluster::DesiredRun Spool::localize(cluster::DesiredRun desired) {
  const RunId& run = desired.run;
  if (!transfer::is_part(run)) {
    on_warning_("a run's id cannot be a folder's name; its files stay where they are");
    return desired;
  }
  const bool is_wanted = desired.want != cluster::Want::kClear && desired.want != cluster::Want::kGone;
  std::error_code ignored;
  if (is_wanted && (!setup_.has_other_owners || fs::exists(folder_of(run), ignored)))
    if (const Status opened = open(run, std::nullopt); !opened) on_warning_(opened.error().message);
  const std::string remote = std::exchange(desired.run_dir, folder_of(run));
  for (std::string& path : desired.resume_from) path = moved(path, remote, desired.run_dir);
  desired.job = shipping::with_files_below(desired.job, tree_of(run));
  remember(run, remote);
  return desired;
}

void Spool::restore(const std::map<RunId, std::string>& remotes, const std::vector<RunId>& runs) {
  for (const auto& [run, remote] : remotes) remember(run, remote);
  std::error_code ignored;
  for (const RunId& run : runs)
    if (transfer::is_part(run) && fs::exists(folder_of(run), ignored))
      if (const Status opened = open(run, std::nullopt); !opened) on_warning_(opened.error().message);
}

/// In place of the oldest that has ended here: what is told of a live one must name the coordinator's folder.
void Spool::remember(const RunId& run, const std::string& remote) {
  if (!remotes_.contains(run)) {
    if (remotes_.size() >= kRemotesMax) {
      auto oldest = std::find_if(remembered_.begin(), remembered_.end(), [this](const RunId& other) {
        const auto place = folders_.find(other);
        return place == folders_.end() || !place->second.is_live;
      });
      if (oldest == remembered_.end()) oldest = remembered_.begin();
      remotes_.erase(*oldest);
      remembered_.erase(oldest);
    }
    remembered_.push_back(run);
  }
  remotes_[run] = remote;
}

cluster::FromAgent Spool::for_coordinator(cluster::FromAgent message) {
  auto* fact = std::get_if<cluster::Fact>(&message);
  if (fact == nullptr) return message;
  const auto remote = remotes_.find(fact->run);
  if (remote == remotes_.end()) return message;
  if (auto* rejected = std::get_if<cluster::CheckpointRejected>(&fact->body)) {
    rejected->checkpoint.path = moved(rejected->checkpoint.path, folder_of(fact->run), remote->second);
  } else if (auto* ready = std::get_if<cluster::WorkerReady>(&fact->body)) {
    ready->ready.path = moved(ready->ready.path, folder_of(fact->run), remote->second);
  } else if (std::holds_alternative<cluster::CheckpointSaved>(fact->body)) {
    look(fact->run);
  }
  return message;
}

void Spool::name_logs(const RunId& run, keeper::ToKeeper& message) const {
  auto* start = std::get_if<keeper::StartForkServer>(&message);
  const auto place = folders_.find(run);
  if (start == nullptr || place == folders_.end()) return;
  start->log_path = fmt::format("{}/logs/fork-server-{}-{:08x}.log", folder_of(run), setup_.node, place->second.life);
}

// ---- runs ----

void Spool::end(const RunId& run) {
  fetcher_.forget(run);
  bringer_.forget(run);
  remove_tree_of(run);
  const auto place = folders_.find(run);
  // One that got no folder, as of an owner who has no account here, has nothing to send: its end need not be waited
  // for.
  if (place == folders_.end()) return link_.send(transfer::AllSent{run});
  place->second.is_live = false;
  // In front of what is looked at and sent.
  sending_.run([folder = folder_of(run)] { open_run_folder(folder); }, [] {});
  sender_.end(run);
}

void Spool::fetch(const RunId& run, const std::string& path, FileFetcher::Handlers handlers) {
  const auto place = folders_.find(run);
  const std::string own = folder_of(run) + "/";
  const std::string below = path.starts_with(own) ? path.substr(own.size()) : "";
  if (place != folders_.end() && transfer::check_restorable(below)) {
    sender_.spare(run, below.substr(below.rfind('/') + 1));
    auto done = [this, run, last = std::move(handlers.on_fetched)](const FileFetcher::Fetched& fetched) {
      sender_.spare(run, "");
      last(fetched);
    };
    return fetcher_.fetch(run, below, place->second.files, {std::move(handlers.on_bytes), std::move(done)});
  }
  boost::asio::post(io_, [done = std::move(handlers.on_fetched)] { done({"it is in no folder of this node", true}); });
}

void Spool::bring_files(const RunId& run, const std::optional<storage::FileOwner>& owner,
                        std::function<void(Status)> done) {
  auto tree = std::make_shared<shipping::RunTree>(store_, tree_of(run), owner);
  const auto brought = [done = std::move(done)](const FileFetcher::Fetched& fetched) {
    done(fetched.error.empty() ? Status() : Status(Error{"its files could not be brought here: " + fetched.error}));
  };
  bringer_.fetch(run, transfer::kFilesFolder, std::move(tree), {{}, brought});
}

/// Behind what has been begun for it, so that nothing of it comes afterwards; its bytes go later, since other runs wait
/// for what they bring.
void Spool::remove_tree_of(const RunId& run) {
  if (!transfer::is_part(run)) return;
  for (const std::string& tree : {tree_of(run) + shipping::kHalf, tree_of(run)}) {
    const std::string gone = gone_name(trees_dir_);
    bringing_.ask([tree, gone] { return ::rename(tree.c_str(), gone.c_str()) == 0; },
                  [this, gone](bool is_there) {
                    if (is_there) remove_bytes(gone);
                  });
  }
}

std::string Spool::gone_name(const std::string& folder) {
  return fmt::format("{}/{}{:08x}", folder, kGone, setup_.incarnation + folders_made_++);
}

/// Of runs of which nothing else is here.
void Spool::remove_old_trees() {
  std::error_code error;
  for (fs::directory_iterator entry(trees_dir_, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string run = entry->path().filename().string();
    if (run.starts_with(kGone)) {
      remove_bytes(entry->path().string());
      continue;
    }
    if (run.ends_with(shipping::kHalf)) run.resize(run.size() - std::string_view(shipping::kHalf).size());
    std::error_code ignored;
    if (!folders_.contains(run) && !remotes_.contains(run) && !fs::exists(folder_of(run), ignored)) remove_tree_of(run);
  }
}

/// The folder is gone at once, its bytes after a while.
void Spool::remove(const RunId& run) {
  const auto place = folders_.find(run);
  if (place == folders_.end() || place->second.is_live) return;
  const std::string gone = gone_name(runs_dir_);
  folders_.erase(place);
  std::error_code error;
  fs::rename(folder_of(run), gone, error);
  if (error) return on_warning_(fmt::format("cannot remove {}: {}", folder_of(run), error.message()));
  fs::remove(mark_of(run), error);
  remove_bytes(gone);
}

void Spool::remove_bytes(const std::string& folder) {
  removing_.ask([folder] { return storage::remove_tree(folder); },
                [this, folder](const std::error_code& error) {
                  if (error)
                    on_warning_(fmt::format("{} cannot be removed: {}; tried again in {}", folder, error.message(),
                                            format_duration(setup_.revisit)));
                });
}

void Spool::keep_for_later(const RunId& run, const std::string& reason) {
  const auto place = folders_.find(run);
  if (place == folders_.end() || place->second.is_live) return;
  folders_.erase(place);
  std::error_code ignored;
  if (!fs::exists(mark_of(run), ignored)) {
    std::string line = reason;
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::ofstream(mark_of(run)) << line << '\n';
    on_warning_(fmt::format("{} stays for {}: {}", folder_of(run), format_duration(setup_.keep_refused), reason));
  }
}

/// What an earlier life has left, or was refused.
void Spool::scan_folders(ScanReason why) {
  std::error_code error;
  for (fs::directory_iterator entry(runs_dir_, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const bool is_gone = name.starts_with(kGone);
    if (is_gone) remove_bytes(entry->path().string());
    if (!is_gone && transfer::is_part(name) && entry->is_directory(ignored) && !folders_.contains(name))
      scan_folder(name, why);
  }
  remove_old_trees();
  revisit_timer_.after(setup_.revisit, [this] { scan_folders(ScanReason::kTimer); });
}

/// There may be no other copy of what was refused. So its time is counted in visits of the timer: a clock that is set,
/// or an agent that starts again and again, brings its end no closer.
void Spool::scan_folder(const RunId& run, ScanReason why) {
  const auto visits = visits_since_refusal(mark_of(run));
  if (visits && why == ScanReason::kTimer) {
    if (*visits * setup_.revisit >= setup_.keep_refused) {
      on_warning_(fmt::format("{} is removed: the coordinator has not taken it", folder_of(run)));
      folders_[run] = {};
      return remove(run);
    }
    std::ofstream(mark_of(run), std::ios::app) << "tried again\n";
  }
  if (const Status made = make_folder(run, std::nullopt); !made) {
    folders_[run] = {};  // Its time must end like that of one that was refused.
    return keep_for_later(run, made.error().message);
  }
  sender_.add(run, folders_.at(run).files);
  sender_.end(run);
}

}  // namespace sgd::agent
