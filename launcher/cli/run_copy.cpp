#include "launcher/cli/run_copy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/process/unique_fd.hpp"
#include "launcher/storage/private_folder.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kAgainMs = 500;  // Between two tries to reach the coordinator.

Status write_json(const std::string& path, const Json& json) {
  auto file = callbacks::FreshFile::create(path);
  if (!file) return file.error();
  if (const Status written = file.value().append(dump_text(json, 2) + "\n"); !written) return written;
  return file.value().publish();
}

}  // namespace

Result<RunCopy> RunCopy::create(const std::string& folder, const Json& job) {
  if (const Status made = storage::make_private_folder(folder + "/checkpoints"); !made) return made.error();
  RunCopy copy(folder);
  if (const Status written = write_json(folder + "/job.json", job); !written) return written.error();
  return copy;
}

Status RunCopy::begin(const NamedRun& run) {
  const Status noted = write_json(folder_ + "/cluster.json", {{"address", to_text(*run.cluster)}, {"run", run.run}});
  if (!noted) error_ = noted.error().message;
  return noted;
}

Status RunCopy::add(const std::string& file, std::uint64_t offset, std::string_view bytes) {
  if (!error_.empty()) return {};
  const auto place = place_of_fetched(folder_, "", file);
  if (!place) return Error{error_ = fmt::format("the coordinator sends a file that nobody asked for: \"{}\"", file)};
  std::error_code ignored;  // Opening the file says it better.
  std::filesystem::create_directories(place->parent_path(), ignored);
  // Not kept open: a run may have more logs than a process may have descriptors.
  const process::UniqueFd fd(::open(place->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  while (fd && !bytes.empty()) {
    const ssize_t count = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    offset += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (fd && bytes.empty()) return {};
  return Error{error_ = system_error("cannot write " + place->string()).message};
}

/// Error: with kUnreachable it may be tried again.
Status RunCopy::fetch_newest(const NamedRun& run, const std::function<bool()>& is_given_up) const {
  const auto listed = ask_for(run, {{"request", "checkpoints"}});
  if (!listed) return listed.error();
  const Json& list = member(member(listed.value(), "checkpoints"), "checkpoints");
  const std::string newest = whole_checkpoint(list, std::nullopt);
  if (newest.empty()) return {};
  const auto came = fetch_checkpoint(run, newest, folder_ + "/checkpoints", is_given_up);
  return came ? Status() : Status(came.error());
}

Status RunCopy::end(const NamedRun& run, const core::RunOutcome& outcome, const std::function<bool()>& is_given_up) {
  if (!error_.empty()) return Error{error_};
  Status fetched = fetch_newest(run, is_given_up);
  while (!fetched && fetched.error().code == exit_code::kUnreachable && !is_given_up()) {
    (void)::poll(nullptr, 0, kAgainMs);
    fetched = fetch_newest(run, is_given_up);
  }
  if (!fetched)
    return Error{fmt::format("{}; sgd-launch checkpoints get {} {}/checkpoints gets its newest checkpoint",
                             fetched.error().message, run.run, folder_)};
  // The last one: whoever waits for the end finds all of it.
  return storage::rewrite_summary(folder_, run.run, outcome);
}

void RunCopy::discard() {
  std::error_code ignored;  // What somebody has put there meanwhile stays.
  for (const char* name : {"/job.json", "/checkpoints", ""}) std::filesystem::remove(folder_ + name, ignored);
}

}  // namespace sgd::cli
