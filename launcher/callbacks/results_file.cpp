#include "launcher/callbacks/results_file.hpp"

#include <utility>

#include "common/json/lenient.hpp"

namespace sgd::callbacks {

ResultsFile::ResultsFile(std::string path, const nlohmann::json& callback)
    : path_(std::move(path)),
      filter_(callback),
      workers_(callback.contains("workers") ? callback["workers"] : nlohmann::json(0)) {}

Result<std::int64_t> ResultsFile::begin() {
  next_.reset();
  whole_ = 0;
  held_ = "[";
  is_first_ = true;
  is_dirty_ = true;
  return std::int64_t{0};
}

Result<Taken> ResultsFile::add(const Report& report) {
  Report results = worker_results(report, workers_);
  for (Report& result : results) result = filter_.of(result);
  held_ += std::exchange(is_first_, false) ? "\n" : ",\n";
  held_ += dump_text(results);
  is_dirty_ = true;
  if (held_.size() < kHeldBytesMax) return Taken::kYes;
  if (const Status spilled = spill(); !spilled) return spilled.error();
  return Taken::kYes;
}

/// Into the file that is to be.
Status ResultsFile::spill() {
  if (!next_) {
    auto made = FreshFile::create(path_);
    if (!made) return made.error();
    next_.emplace(std::move(made).value());
    if (const Status copied = next_->copy_front(whole_); !copied) return copied;
  }
  const Status written = next_->append(held_);
  if (written) held_.clear();
  return written;
}

Status ResultsFile::flush() {
  if (!is_dirty_) return {};
  if (const Status spilled = spill(); !spilled) return spilled;
  const std::uint64_t whole = next_->size();
  if (const Status ended = next_->append(is_first_ ? "]\n" : "\n]\n"); !ended) return ended;
  if (const Status published = next_->publish(); !published) return published;
  whole_ = whole;
  next_.reset();
  is_dirty_ = false;
  return {};
}

}  // namespace sgd::callbacks
