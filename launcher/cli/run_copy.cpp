#include "launcher/cli/run_copy.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/storage/private_folder.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

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
  return write_json(folder_ + "/cluster.json", {{"address", to_text(*run.cluster)}, {"run", run.run}});
}

Status RunCopy::add(const std::string& file, std::uint64_t offset, std::string_view bytes) {
  if (!error_.empty()) return {};
  const auto place = place_of_fetched(folder_, "", file);
  if (!place) return Error{error_ = fmt::format("the coordinator sends a file that nobody asked for: \"{}\"", file)};
  process::UniqueFd& fd = files_[file];
  if (!fd) {
    std::error_code ignored;  // Opening the file says it better.
    std::filesystem::create_directories(place->parent_path(), ignored);
    fd.reset(::open(place->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  }
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

Status RunCopy::end(const NamedRun& run, const core::RunOutcome& outcome) {
  files_.clear();
  if (!error_.empty()) return Error{error_};
  const auto listed = ask(run, {{"request", "checkpoints"}});
  if (!listed) return listed.error();
  const Json list = listed.value() ? member(member(*listed.value(), "checkpoints"), "checkpoints") : Json();
  if (const std::string newest = whole_checkpoint(list, std::nullopt); !newest.empty())
    if (const auto came = fetch_checkpoint(run, newest, folder_ + "/checkpoints"); !came) return came.error();
  // The last one: whoever waits for the end finds all of it.
  return storage::rewrite_summary(folder_, run.run, outcome);
}

}  // namespace sgd::cli
