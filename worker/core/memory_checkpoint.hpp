#pragma once
// Checkpoints in memory that outlives ranks: a memfd of the keeper, one per node, with two slots.
// Local rank 0 writes it between optimizer steps; the next generation reads it back. Knows nothing
// of tensors: a checkpoint is a text of any length (state.json and what ranks keep of their own) and
// parts of fixed sizes.
//
//   page 0       identity, size of a slot's parts, the step that training has reached
//   page 1, 2    of slot 0 and 1: stamp, step, position, sizes, the text's area, checksums
//   then         parts of slot 0, of slot 1, each on 64 bytes
//   behind       an area for each slot's text, anywhere
//
// The invariant: at any instruction at least one slot that was whole stays whole. A commit takes the
// slot with the older stamp, clears that stamp, writes, and sets the new stamp last. The stamp is
// one word (generation, sequence), so giving a slot to a later generation is one store, too.
//
// A text that does not fit gets a larger area, beside both that are there, before the stamp is cleared: where no memory
// can be had, both slots stay as they were. The slot's area is one word, changed while the slot is empty; the old
// area's memory is given back at once. What a kill leaves in between, in no slot's area, populate() gives back.
//
// One process writes at a time: local rank 0 of the live generation. No locks, no threads, no clock.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "worker/core/memory_areas.hpp"

namespace sgd::worker {

/// What a slot has room for. A region of another layout holds another model and is ignored.
struct MemoryLayout {
  std::vector<std::size_t> part_bytes;
  std::uint64_t digest = 0;  ///< Of names, shapes and types: sizes alone may agree by chance.

  bool operator==(const MemoryLayout&) const = default;
};

/// Where training stood; compared before anything of a text is read.
struct MemoryPoint {
  std::int64_t step = 0;  ///< Optimizer steps since the run's start.
  int epoch = 1;
  bool validating = false;    ///< After the training part of the epoch.
  std::int64_t consumed = 0;  ///< In that phase.

  auto operator<=>(const MemoryPoint&) const = default;
};

/// A slot that holds a checkpoint.
struct MemorySlot {
  int index = 0;
  Generation generation = 0;
  std::uint32_t sequence = 0;  ///< Counts the region's commits.
  MemoryPoint point;
};

struct MemoryRegionHeader;
struct MemorySlotHeader;

class MemoryCheckpoint {
 public:
  /// Room for a slot's text at first; it doubles as often as a text needs.
  static constexpr std::size_t kTextBytesFirst = std::size_t{64} << 10;
  /// The longest text.
  static constexpr std::size_t kTextBytesMax = std::size_t{64} << 30;

  /// Maps the region in `fd`, which stays open as long, when it was made for this layout; null when it was not, or is
  /// empty.
  [[nodiscard]] static Result<std::unique_ptr<MemoryCheckpoint>> attach(int fd, const MemoryLayout& layout);
  /// Makes the region anew; what it held is gone. No other process may be reading it.
  [[nodiscard]] static Result<std::unique_ptr<MemoryCheckpoint>> create(int fd, const MemoryLayout& layout);
  MemoryCheckpoint(const MemoryCheckpoint&) = delete;
  MemoryCheckpoint& operator=(const MemoryCheckpoint&) = delete;
  ~MemoryCheckpoint();

  /// The slot of the newest stamp; only read() proves it.
  [[nodiscard]] std::optional<MemorySlot> newest() const;
  /// The slot as it is stamped now; nothing when it is empty.
  [[nodiscard]] std::optional<MemorySlot> slot(int index) const;

  /// Copies the parts out, whose spans have the layout's sizes, and returns the text. Its checksums are proven on the
  /// way: an error says what is damaged, and the parts hold nothing of use then.
  [[nodiscard]] Result<std::string> read(int index, std::span<const std::span<std::byte>> parts) const;
  /// The slot is empty from here on, so that no commit spares it. For the writer, of one that is damaged.
  void discard(int index);

  /// Replaces the older slot; the text is that of all pieces, one after another. An error when a part has another size,
  /// or when there is no memory for the text: nothing is changed then.
  Status commit(Generation generation, const MemoryPoint& point, std::span<const std::string_view> text,
                std::span<const std::span<const std::byte>> parts);
  /// The slot belongs to `generation` from here on: it wins over all that earlier ones left anywhere.
  void restamp(int index, Generation generation);

  /// Gives the region all its memory and maps it here, so that no commit waits for pages; takes long. Gives back what a
  /// writer that was killed has left. May run beside everything but commit(), by the writer. Ends early, without an
  /// error, when `cancelled`.
  [[nodiscard]] Status populate(const std::atomic<bool>& cancelled);

  /// The last step that training finished, newer than any slot; nothing before the first set_live_step().
  [[nodiscard]] std::optional<std::int64_t> live_step() const;
  void set_live_step(std::int64_t step);

  /// Bytes of a slot's parts.
  [[nodiscard]] std::size_t part_bytes() const;
  /// Bytes that the slot's text has room for.
  [[nodiscard]] std::size_t text_room(int index) const { return text_area(index).bytes; }

 private:
  MemoryCheckpoint(int fd, std::byte* base, MemoryLayout layout);
  [[nodiscard]] MemoryRegionHeader& header() const;
  [[nodiscard]] MemorySlotHeader& slot_header(int index) const;
  [[nodiscard]] std::size_t parts_begin(int index) const;
  [[nodiscard]] FileArea text_area(int index) const;
  [[nodiscard]] Result<FileArea> make_room(int index, std::size_t text_bytes) const;
  [[nodiscard]] Result<std::uint32_t> write_text(std::size_t at, std::span<const std::string_view> text) const;

  int fd_;
  std::byte* base_;
  MemoryLayout layout_;
  std::size_t bytes_;  // Of all that has a fixed place, which is mapped; the texts lie behind it.
};

}  // namespace sgd::worker
