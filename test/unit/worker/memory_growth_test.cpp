// Memory checkpoints whose text grows: room is made beside what is there, and a writer may die anywhere in it.
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include <catch2/catch.hpp>

#include "test/unit/worker/rank_processes.hpp"
#include "worker/core/memory_checkpoint.hpp"

namespace sgd::worker::growth {
namespace {

using testing::Memory;

constexpr std::size_t kFirst = MemoryCheckpoint::kTextBytesFirst;
constexpr std::size_t kWeights = 500;
constexpr std::size_t kFixedBytes = 3 * 4096 + 2 * 4096;  // Headers, and the parts of two slots.

MemoryLayout layout() {
  return {{kWeights * sizeof(float)}, 1};
}

/// A letter that tells the step, so often as the step's text is long.
std::string text_of(std::int64_t step, std::size_t bytes) {
  return std::string(bytes, static_cast<char>('a' + step % 26));
}

Status commit(MemoryCheckpoint& region, std::int64_t step, std::size_t text_bytes) {
  const std::vector<float> weights(kWeights, static_cast<float>(step));
  const std::string text = text_of(step, text_bytes);
  const std::size_t half = text_bytes / 2;
  const std::string_view pieces[] = {std::string_view(text).substr(0, half), std::string_view(text).substr(half)};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(weights))};
  return region.commit(1, {step}, pieces, parts);
}

std::unique_ptr<MemoryCheckpoint> attached(const Memory& memory) {
  auto region = MemoryCheckpoint::attach(memory.fd(), layout());
  REQUIRE((region.ok() && region.value()));
  return std::move(region).value();
}

/// The step that the slot holds whole, with a text of any length; -1 where it does not.
std::int64_t step_in(const MemoryCheckpoint& region, int index) {
  const auto slot = region.slot(index);
  if (!slot) return -1;
  std::vector<float> weights(kWeights);
  const std::span<std::byte> parts[] = {std::as_writable_bytes(std::span(weights))};
  const Result<std::string> text = region.read(index, parts);
  if (!text) return -1;
  const std::int64_t step = slot->point.step;
  const bool same = text.value() == text_of(step, text.value().size()) &&
                    weights == std::vector<float>(kWeights, static_cast<float>(step));
  return same ? step : -1;
}

std::int64_t newest_step(const MemoryCheckpoint& region) {
  const auto newest = region.newest();
  return newest ? step_in(region, newest->index) : -1;
}

std::size_t memory_of(const Memory& memory) {
  struct stat info {};
  REQUIRE(::fstat(memory.fd(), &info) == 0);
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

void copy_file(const Memory& from, const Memory& to) {
  REQUIRE(::ftruncate(to.fd(), 0) == 0);
  std::vector<char> bytes(static_cast<std::size_t>(::lseek(from.fd(), 0, SEEK_END)));
  REQUIRE(::pread(from.fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(::pwrite(to.fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

/// What the next generation does with what it finds: takes the memory, gives back what is left over, and goes on.
void go_on_from(const Memory& memory, std::int64_t step) {
  const auto region = attached(memory);
  const std::atomic<bool> cancelled{false};
  REQUIRE(region->populate(cancelled).ok());
  CHECK(newest_step(*region) == step);
  CHECK(memory_of(memory) == kFixedBytes + region->text_room(0) + region->text_room(1));
  for (const std::size_t bytes : {10 * kFirst, std::size_t{9}}) {
    REQUIRE(commit(*region, ++step, bytes).ok());
    CHECK(newest_step(*attached(memory)) == step);
  }
  CHECK(memory_of(memory) == kFixedBytes + region->text_room(0) + region->text_room(1));
}

/// Runs `write` in a child until it ends or is killed.
pid_t begin_child(const std::function<void()>& write) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    write();
    _exit(0);
  }
  return child;
}

}  // namespace

TEST_CASE("memory checkpoint: a text of any length comes back, and room doubles for it") {
  const Memory memory;
  REQUIRE(MemoryCheckpoint::create(memory.fd(), layout()).ok());
  const std::atomic<bool> cancelled{false};
  REQUIRE(attached(memory)->populate(cancelled).ok());
  std::int64_t step = 0;
  std::size_t rooms[2] = {kFirst, kFirst};
  for (const std::size_t bytes : {std::size_t{0}, kFirst, kFirst + 1, std::size_t{3}, 9 * kFirst, 9 * kFirst + 1,
                                  std::size_t{5} << 20, std::size_t{5}, std::size_t{8} << 20, 2 * kFirst}) {
    CAPTURE(bytes);
    ++step;
    std::size_t& room = rooms[(step + 1) % 2];
    while (room < bytes) room *= 2;
    REQUIRE(commit(*attached(memory), step, bytes).ok());
    const auto region = attached(memory);
    CHECK(newest_step(*region) == step);
    CHECK(step_in(*region, static_cast<int>(step % 2)) == (step == 1 ? -1 : step - 1));
    for (const int index : {0, 1}) CHECK(region->text_room(index) == rooms[index]);
    CHECK(memory_of(memory) == kFixedBytes + rooms[0] + rooms[1]);  // Nothing is left of what was outgrown.
  }
  // The lowest place that is free is taken: the file has not grown with every step.
  CHECK(static_cast<std::size_t>(::lseek(memory.fd(), 0, SEEK_END)) < kFixedBytes + 3 * (std::size_t{8} << 20));
}

TEST_CASE("memory checkpoint: where no memory can be had for a text, both copies stay") {
  const Memory memory;
  REQUIRE(MemoryCheckpoint::create(memory.fd(), layout()).ok());
  const auto region = attached(memory);
  REQUIRE(commit(*region, 1, 100).ok());
  REQUIRE(commit(*region, 2, 3 * kFirst).ok());
  const std::size_t before = memory_of(memory);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{static_cast<rlim_t>(kFixedBytes + 20 * kFirst), limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status refused = commit(*region, 3, 250 * kFirst);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message ==
        "the state beside the tensors has 16384000 bytes, and 16777216 bytes of memory for it cannot be had: File too "
        "large");
  CHECK(step_in(*region, 0) == 1);
  CHECK(step_in(*region, 1) == 2);
  CHECK(memory_of(memory) == before);
  REQUIRE(commit(*region, 3, 250 * kFirst).ok());
  CHECK(newest_step(*attached(memory)) == 3);
  (void)std::signal(SIGXFSZ, ignored);
}

TEST_CASE("memory checkpoint: a writer killed at any system call of its leaves a whole copy and no memory behind") {
  const Memory memory;
  REQUIRE(MemoryCheckpoint::create(memory.fd(), layout()).ok());
  REQUIRE(commit(*attached(memory), 1, 10).ok());
  REQUIRE(commit(*attached(memory), 2, 10).ok());
  const pid_t child = begin_child([&memory] {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0 || ::raise(SIGSTOP) != 0) _exit(1);
    const auto region = MemoryCheckpoint::attach(memory.fd(), layout());
    // Both slots grow, again where they have grown, and one that was outgrown is small again.
    std::int64_t step = 2;
    for (const std::size_t bytes : {3 * kFirst, 5 * kFirst, 7 * kFirst, std::size_t{9}, 20 * kFirst})
      if (!commit(*region.value(), ++step, bytes)) _exit(1);
  });
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSTOPPED(status));
  std::int64_t reached = 2;
  std::size_t stops = 0;
  const Memory killed;  // As the child would leave it, were it killed here.
  for (;;) {
    REQUIRE(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0);
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) break;
    ++stops;
    copy_file(memory, killed);
    const std::int64_t step = newest_step(*attached(killed));
    CHECK((step == reached || step == reached + 1));
    reached = step;
    go_on_from(killed, step);
  }
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(newest_step(*attached(memory)) == 7);
  CHECK(stops > 30);  // Each commit has some, twice: before and after.
}

TEST_CASE("memory checkpoint: a writer killed at any instant of its growth leaves a whole copy") {
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    const Memory memory;
    REQUIRE(MemoryCheckpoint::create(memory.fd(), layout()).ok());
    REQUIRE(commit(*attached(memory), 1, 10).ok());
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = begin_child([&memory, &told] {
      const auto region = MemoryCheckpoint::attach(memory.fd(), layout());
      for (std::int64_t step = 2; step < 14; ++step) {
        if (!commit(*region.value(), step, kFirst << step / 2)) _exit(1);
        if (::write(told[1], "x", 1) != 1) _exit(1);
      }
      for (;;) ::pause();
    });
    ::close(told[1]);
    // A different instant each round: after some commits, and within the next one.
    char letter = 0;
    std::int64_t done = 1;
    for (; done <= 1 + round % 10; ++done) REQUIRE(::read(told[0], &letter, 1) == 1);
    for (std::atomic<int> spin = 0; spin < round * 997; ++spin) {
    }
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    while (::read(told[0], &letter, 1) == 1) ++done;
    ::close(told[0]);
    const std::int64_t step = newest_step(*attached(memory));
    CHECK((step == done || step == done + 1));
    go_on_from(memory, step);
  }
}

}  // namespace sgd::worker::growth
