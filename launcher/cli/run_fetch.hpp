#pragma once
// Files of a run on a cluster, into a folder here. They are followed by offset, so what came before an interruption, of
// the connection or of this program, is not asked for again.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {

/// Where `file` of a run's folder, which a coordinator names, goes in `folder`, without `front`. Nothing: it would lead
/// out of it, or is no file of a run that is asked for.
[[nodiscard]] std::optional<std::filesystem::path> place_of_fetched(const std::string& folder, const std::string& front,
                                                                    const std::string& file);

/// The path of the newest of `checkpoints` that is whole, or of that of `step`; empty: there is none. `checkpoints`: a
/// list as the request "checkpoints" is answered with.
[[nodiscard]] std::string whole_checkpoint(const nlohmann::ordered_json& checkpoints, std::optional<int> step);

/// `follow`: keys of a follow as in coordinator/client_service.hpp; its "offsets" go before those of what is here. A
/// file keeps its path in the run's folder, without `front`. Ends when all that the coordinator has now is here. The
/// bytes that came; an error's code is the exit code. `is_given_up` is asked ten times a second; may be empty.
[[nodiscard]] Result<std::uint64_t> fetch_files(const NamedRun& run, nlohmann::ordered_json follow,
                                                const std::string& folder, const std::string& front = {},
                                                const std::function<bool()>& is_given_up = {});

/// The checkpoint at `path`, relative to the run's folder, whole by its checksums: its folder here, in `folder`. Error:
/// another run's is there, which has the same name, or one that is damaged; neither is touched.
[[nodiscard]] Result<std::string> fetch_checkpoint(const NamedRun& run, const std::string& path,
                                                   const std::string& folder,
                                                   const std::function<bool()>& is_given_up = {});

/// "logs" or "metrics.jsonl" of a run, wherever it is, into `folder`; says where. The exit code. A folder has files of
/// one run: its run.json says of which, and another one's are refused.
[[nodiscard]] int save_files(const NamedRun& run, nlohmann::ordered_json follow, const std::string& name,
                             const std::string& folder);

}  // namespace sgd::cli
