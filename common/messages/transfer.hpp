#pragma once
// The files of a run between a node and the coordinator, on a connection of its own: logs and checkpoints go up, and a
// node that lacks a checkpoint asks for it. JSON frames; a Put or Data that announces bytes is followed by one chunk
// frame with them.
//
//   up:    query -> have(offset) -> put ... put -> have ...      resumable at any chunk: the receiver says what it has
//          checkpoint_done -> stored | refused
//          all_sent -> taken                                   the node has nothing left of the run
//   down:  get(path) -> listing | pending ... | refused;  get(file, offset) -> data
//          `path` is a checkpoint of the run's, one that it has taken from another ("taken/0001/step-..."), or
//          "files": what its job has brought
//
// The sender keeps at most kWindowBytes without an acknowledgement. A chunk's checksum covers its place, too: bytes
// never end up in another file or at another offset. A file's name is made of few and harmless parts, or is refused.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"

namespace sgd::transfer {

inline constexpr std::int64_t kChunkBytesMax = 1 << 20;
/// Bytes on their way: put and not acknowledged, or asked for and not come.
inline constexpr std::int64_t kWindowBytes = 8 << 20;
inline constexpr std::size_t kPartBytesMax = 128;  ///< Of a name, between slashes.
inline constexpr int kPartsMax = 3;
/// In a run's folder: what its job has brought ("files"), by hash, and manifest.json, which says what is called how.
inline constexpr const char* kFilesFolder = "files";
/// And the checkpoints that it has taken from other runs, each in a folder of its own.
inline constexpr const char* kTakenFolder = "taken";
/// In a trial's folder, of the coordinator: checkpoints of its best values from before it took another one's state.
inline constexpr const char* kBestFolder = "best";
inline constexpr std::size_t kPathsMax = 1000;  ///< In one message.
/// Of a checkpoint or of what a job brings, in one message, which has room for so many of the longest names.
inline constexpr std::size_t kListedFilesMax = 6000;

// ---- node -> coordinator ----

/// First message: what this connection is for, and whose it is.
struct Files {
  NodeId node;
  Incarnation incarnation = 0;
};
/// `bytes` of `file` from `offset` on. With `last` and no bytes: the file ends there, and is to be safe on disk.
struct Put {
  RunId run;
  std::string file;  ///< "logs/gen-0001/rank-0000.log"
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t crc32c = 0;  ///< checksum() of place and bytes.
  bool last = false;
};
/// How much of `file` is there? Answered by Have, by Stored when it is part of a checkpoint that is whole, or by
/// Refused.
struct Query {
  RunId run;
  std::string file;
};
/// Every file of the checkpoint is put. Answered by Stored or Refused.
struct CheckpointDone {
  RunId run;
  std::string path;
};
/// With a `file`: its bytes, answered by Data. Without: what the checkpoint consists of, answered by Listing.
struct Get {
  RunId run;
  std::string path;
  std::string file;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};
/// The answer to a Ship that cannot be carried out.
struct Lacks {
  RunId run;
  std::string path;
  std::string reason;
};

/// Nothing more of the run will come from this node, and everything is acknowledged. Answered by Taken.
struct AllSent {
  RunId run;
};

using FromNode = std::variant<Files, Put, Query, CheckpointDone, Get, Lacks, AllSent>;

// ---- coordinator -> node ----

/// The first `offset` bytes of `file` are there.
struct Have {
  RunId run;
  std::string file;
  std::int64_t offset = 0;
  bool rewind = false;  ///< Bytes are missing or were damaged: put goes on from `offset`.
  bool last = false;    ///< The answer to a Put with `last`: safe on disk.
  std::string reason;   ///< With rewind: why not at once, for example a full disk; put goes on after a while.
};
/// The checkpoint is whole and safe on disk.
struct Stored {
  RunId run;
  std::string path;
};
/// `path` is a file or a checkpoint; it is not asked for again on this connection.
struct Refused {
  RunId run;
  std::string path;
  std::string reason;
  bool unknown_run = false;
};
struct ListedFile {
  std::string name;
  std::int64_t bytes = 0;
};
/// The files of a checkpoint that can be got, manifest.json the last.
struct Listing {
  RunId run;
  std::string path;
  std::vector<ListedFile> files;
};
struct Data {
  RunId run;
  std::string path;
  std::string file;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t crc32c = 0;
};
/// A listing is not possible yet: the checkpoint is on its way from another node, `bytes` have come.
struct Pending {
  RunId run;
  std::string path;
  std::int64_t bytes = 0;
};
/// Another node needs this checkpoint: put it next. Answered by Lacks if it is not there.
struct Ship {
  RunId run;
  std::string path;
};
/// Of the run's checkpoints these count; older ones need not be kept or put any more.
struct Keep {
  RunId run;
  std::vector<std::string> paths;
};
/// The node's word that it has sent everything is heard: it may remove what it has.
struct Taken {
  RunId run;
};

using ToNode = std::variant<Have, Stored, Refused, Listing, Data, Pending, Ship, Keep, Taken>;

[[nodiscard]] std::string encode(const FromNode& message);
[[nodiscard]] std::string encode(const ToNode& message);
[[nodiscard]] Result<FromNode> decode_from_node(std::string_view json);
[[nodiscard]] Result<ToNode> decode_to_node(std::string_view json);

// ---- names and checksums ----

/// Whether `file` names a file of a run that may travel: below logs/, errors/ or a checkpoint's folder, 2 or 3 parts of
/// [A-Za-z0-9._-] that begin with no dot. Errors are short and printable whatever the name is.
[[nodiscard]] Status check_file(std::string_view file);
/// Whether `path` is "checkpoints/" and a checkpoint's name.
[[nodiscard]] Status check_checkpoint(std::string_view path);
/// Whether `path` is "taken/", one more folder, and a checkpoint's name.
[[nodiscard]] Status check_taken(std::string_view path);
/// Whether `path` is a checkpoint of the run's own, or one that it has taken.
[[nodiscard]] Status check_restorable(std::string_view path);
/// Whether `path` is what a node may get: such a checkpoint, or "files".
[[nodiscard]] Status check_gettable(std::string_view path);
/// The start of a name or path that may hold anything, between quotes and printable: fit for a log line.
[[nodiscard]] std::string shown(std::string_view name);
/// Whether `name` can stand for one folder or file.
[[nodiscard]] bool is_part(std::string_view name);
/// "checkpoints/step-.../model.safetensors": "checkpoints/step-...", also of one that was taken; empty for other files.
[[nodiscard]] std::string checkpoint_of(std::string_view file);

/// CRC-32C of the place and the bytes of a chunk.
[[nodiscard]] std::uint32_t checksum(std::string_view run, std::string_view file, std::int64_t offset,
                                     std::string_view bytes);

}  // namespace sgd::transfer
