#pragma once
// RaySGD's results.json: one JSON array, in which each report is the list of the chosen workers' results. Whoever reads
// it at any moment sees a whole array: it is replaced by rename. It is made anew from the run's first report when a
// process begins with it, since what it holds is a function of the reports.

#include <optional>
#include <string>

#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/callbacks/sink.hpp"

namespace sgd::callbacks {

class ResultsFile : public Sink {
 public:
  /// What is added is held in memory up to here.
  static constexpr std::size_t kHeldBytesMax = 1 << 20;

  ResultsFile(std::string path, const nlohmann::json& callback);

  [[nodiscard]] Result<std::int64_t> begin() override;
  [[nodiscard]] Result<Taken> add(const Report& report) override;
  [[nodiscard]] Status flush() override;
  [[nodiscard]] std::string place() const override { return path_; }

 private:
  [[nodiscard]] Status spill();

  std::string path_;
  NameFilter filter_;
  nlohmann::json workers_;
  std::optional<FreshFile> next_;  ///< That is to be the file; absent until something was added.
  std::uint64_t whole_ = 0;        ///< Bytes of the file without its end; 0: it is to be made anew.
  std::string held_;               ///< Added, and not written.
  bool is_first_ = true;           ///< No report is in it.
  bool is_dirty_ = true;
};

}  // namespace sgd::callbacks
