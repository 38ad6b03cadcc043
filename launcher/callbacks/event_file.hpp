#pragma once
// A TensorBoard event file that one run has in a folder, also over several lives of the run: records are added behind
// those that are whole, of which each report has one. TensorBoard may read it meanwhile.

#include <cstdint>
#include <string>

#include "launcher/callbacks/event_record.hpp"
#include "launcher/callbacks/sink.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::callbacks {

class EventFile : public Sink {
 public:
  static constexpr std::size_t kHeldBytesMax = 1 << 20;

  /// `tag`: the file's name ends with it, and no other file's in the folder. `job`: resolved.
  EventFile(std::string folder, std::string tag, const nlohmann::json& callback, nlohmann::json job);

  [[nodiscard]] Result<std::int64_t> begin() override;
  [[nodiscard]] Result<Taken> add(const Report& report) override;
  [[nodiscard]] Status flush() override;
  [[nodiscard]] Status end(bool succeeded) override;
  [[nodiscard]] std::string place() const override { return folder_; }

 private:
  [[nodiscard]] Result<std::string> own_file() const;
  [[nodiscard]] Result<std::int64_t> count_records();

  std::string folder_;
  std::string tag_;
  NameFilter filter_;
  EventOptions options_;
  nlohmann::json job_;
  std::string path_;
  process::UniqueFd file_;
  std::uint64_t size_ = 0;  ///< Of the whole records.
  std::string held_;        ///< Added, and not written.
};

}  // namespace sgd::callbacks
