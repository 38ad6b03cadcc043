#pragma once
// What the "files" of a job are where it was written: files, and all files in folders, with the hashes of their bytes.

#include <map>
#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "launcher/shipping/file_set.hpp"

namespace sgd::shipping {

struct FoundFiles {
  FileSet set;
  std::string text;                            ///< The set's.
  std::string sha256;                          ///< Of the text.
  std::map<std::string, std::string> sources;  ///< A path from which a hash's bytes can be read.
};

/// Of the absolute `paths`. A link is followed where it leads to a file in the same folder; what cannot travel, a link
/// elsewhere, a device, a name that is no text, is an error that names it, and all errors are found at once. `source`
/// is whose they are.
[[nodiscard]] FoundFiles find_files(const std::vector<std::string>& paths, const std::string& source,
                                    Diagnostics& diagnostics);
/// Whether they are there: for a run that uses them where they are.
void check_files(const std::vector<std::string>& paths, const std::string& source, Diagnostics& diagnostics);

}  // namespace sgd::shipping
