// Gradients on devices: NCCL's part played by fake_nccl, a library with its interface, and memory of the host in the
// place of a device's. Ranks are processes.
#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "test/unit/worker/collective_checks.hpp"
#include "test/unit/worker/rank_processes.hpp"
#include "worker/collective/device_collective.hpp"
#include "worker/collective/factory.hpp"
#include "worker/collective/nccl_api.hpp"
#include "worker/collective/sum.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker::nccl_test {
namespace {

using namespace std::chrono_literals;
using testing::expect;
using testing::Memory;
using testing::RankContext;

constexpr std::size_t kCount = 12'345;

void* fake_nccl(const char* function) {
  void* library = ::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  expect(library != nullptr, "the library is not loaded");
  return ::dlsym(library, function);
}

class HostGradients final : public DeviceGradients {
 public:
  HostGradients() : values_(kCount) {}
  [[nodiscard]] std::span<float> values() override { return values_.span(); }
  [[nodiscard]] void* stream() override { return nullptr; }
  [[nodiscard]] std::function<void()> entrance() override {
    return [] { reinterpret_cast<void (*)()>(fake_nccl("fake_nccl_enter"))(); };
  }
  void check() override {
    if (has_failed) throw DeviceFault("GPU-1234 has failed");
  }
  void look(std::size_t offset, std::size_t count) override { seen_ = all_finite(values().subspan(offset, count)); }
  /// As an event of LibTorch that was never recorded: it asks no device.
  [[nodiscard]] std::optional<bool> seen() override {
    if (seen_) check();
    if (never_comes) return std::nullopt;
    return seen_;
  }
  void fetch(std::size_t offset, std::span<float> to) override {
    std::memcpy(to.data(), values().data() + offset, to.size_bytes());
  }
  void put(std::size_t offset, std::span<const float> from) override {
    std::memcpy(values().data() + offset, from.data(), from.size_bytes());
  }

  std::atomic<bool> never_comes{false};
  std::atomic<bool> has_failed{false};

 private:
  AlignedFloats values_;
  std::optional<bool> seen_;
};

/// What a rank finds in its environment.
struct Library {
  const char* path = FAKE_NCCL;
  std::map<std::string, std::string> knobs = {};
};

CollectiveSetup setup_of(const RankContext& context, const Memory& region, DeviceGradients& gradients) {
  CollectiveSetup setup;
  setup.rank = setup.local_rank = context.rank;
  setup.world_size = setup.local_world_size = context.size;
  setup.generation = 3;
  setup.region_fd = region.fd();
  setup.gradient_count = kCount;
  setup.device = &gradients;
  setup.stall_timeout = testing::kNoStall;
  setup.exchange = context.exchange;
  return setup;
}

std::vector<std::string> run(int size, const Library& library,
                             const std::function<void(const RankContext&, const Memory&)>& body) {
  const Memory region;
  testing::RankRun run;
  run.size = size;
  return testing::run_ranks(run, [&](const RankContext& context) {
    ::setenv(kNcclVariable, library.path, 1);
    for (const auto& [name, value] : library.knobs) ::setenv(name.c_str(), value.c_str(), 1);
    body(context, region);
  });
}

void check_all_fine(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

constexpr const char* kLeft = "the other one has left already";

/// Whoever hears of it first leaves, and the other may hear no more than that.
void check_one_is_fine(const std::vector<std::string>& errors) {
  CHECK(std::count(errors.begin(), errors.end(), "") >= 1);
  for (const std::string& error : errors) CHECK((error.empty() || error.find(kLeft) != std::string::npos));
}

std::string setup_error(const std::string& library) {
  try {
    (void)open_nccl(library);
  } catch (const CollectiveSetupError& error) {
    return error.what();
  }
  return "";
}

int count_of(const char* function) {
  return reinterpret_cast<int (*)()>(fake_nccl(function))();
}

int live_communicators() {
  return count_of("fake_nccl_live");
}

/// NCCL clears up beside whoever has aborted.
void expect_no_communicator_is_left() {
  const TimePoint end = std::chrono::steady_clock::now() + testing::kNoStall;
  while (live_communicators() != 0 && std::chrono::steady_clock::now() < end)
    (void)::poll(nullptr, 0, 1);  // Ignoring: only time passes.
  expect(live_communicators() == 0, "communicators are left");
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

/// The text of the error that an all-reduce ends with, and how long it took.
std::string error_of(Collective& collective) {
  try {
    (void)collective.all_reduce(0);  // Ignoring: it throws.
  } catch (const CollectiveError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("nccl: sums, control words and messages of one to three ranks are right, and as shared memory makes them") {
  for (const int size : {1, 2, 3}) {
    for (const char* backend : {"auto", "shm"}) {
      check_all_fine(run(size, {}, [&](const RankContext& context, const Memory& region) {
        HostGradients gradients;
        CollectiveSetup setup = setup_of(context, region, gradients);
        setup.backend = backend;
        const std::unique_ptr<Collective> collective = make_collective(setup);
        expect(collective->gradients().data() == gradients.values().data(), "gradients lie elsewhere");
        testing::check_collective(*collective);
        testing::check_bit_equal(*collective);
      }));
    }
  }
}

TEST_CASE("nccl: one rank needs no library") {
  check_all_fine(run(1, {"/does/not/exist.so", {}}, [](const RankContext& context, const Memory& region) {
    HostGradients gradients;
    testing::check_collective(*make_collective(setup_of(context, region, gradients)));
  }));
}

TEST_CASE("nccl: ranks that come for different parts all learn it, with nothing given to the devices") {
  for (const std::string& error : run(2, {}, [](const RankContext&context, const Memory&region) {
         HostGradients gradients;
         const std::unique_ptr<Collective> collective = make_collective(setup_of(context, region, gradients));
         (void)collective->all_reduce(0, 0, context.rank == 0 ? kCount : 16);  // Ignoring: it throws.
       })) {
    CHECK_THAT(error, Catch::Contains("all_reduce"));
    CHECK_THAT(error, Catch::Contains("12345"));
  }
}

TEST_CASE("nccl: a hundred groups after each other, each aborted in a sum, leave nothing behind") {
  check_all_fine(run(2, {}, [](const RankContext& context, const Memory& region) {
    std::size_t descriptors = 0;
    for (int round = 0; round < 100; ++round) {
      HostGradients gradients;
      CollectiveSetup setup = setup_of(context, region, gradients);
      setup.generation = static_cast<Generation>(round + 1);
      setup.exchange = [&](const std::string& key, const std::string& value) {
        return context.exchange(key + std::to_string(round), value);
      };
      const std::unique_ptr<Collective> collective = make_collective(setup);
      expect(collective->all_reduce(0) == 0, "the control word");
      gradients.never_comes = true;
      std::thread aborting([&] { collective->abort(); });
      const std::string error = error_of(*collective);
      aborting.join();
      expect(error.find("aborted") != std::string::npos, "the error is " + error);
      if (round == 10) descriptors = open_descriptors();
      (void)context.exchange("round " + std::to_string(round), "done");  // Ignoring the values: all are here.
    }
    expect_no_communicator_is_left();
    expect(count_of("fake_nccl_aborted_without_device") == 0, "a thread has aborted without choosing its device");
    // Rank 0 of the fake keeps one descriptor for each id, as long as its process lives.
    expect(open_descriptors() <= descriptors + (context.rank == 0 ? 90u : 0u), "descriptors are left");
  }));
}

TEST_CASE("nccl: a sum that hangs is left at an abort, and waits for no thread of the library") {
  for (const bool in_library : {false, true}) {
    Library library{FAKE_NCCL,
                    {{"FAKE_NCCL_ABORT_MS", "5000"}}};  // NCCL's own threads keep it for as long as a second.
    if (in_library) library.knobs["FAKE_NCCL_HANG_AFTER"] = "1";
    check_all_fine(run(2, library, [&](const RankContext& context, const Memory& region) {
      HostGradients gradients;
      const std::unique_ptr<Collective> collective = make_collective(setup_of(context, region, gradients));
      expect(collective->all_reduce(0) == 0, "the control word");
      gradients.never_comes = !in_library;
      std::atomic<TimePoint::rep> asked{0};
      std::thread aborting([&, waiting = ::gettid()] {
        testing::wait_until_asleep(waiting);
        asked = std::chrono::steady_clock::now().time_since_epoch().count();
        collective->abort();
      });
      const std::string error = error_of(*collective);
      const TimePoint left_at = std::chrono::steady_clock::now();
      aborting.join();
      // The other rank's abort may have come first.
      const Duration left = left_at.time_since_epoch() - Duration(asked.load());
      expect(error.find("aborted") != std::string::npos, "the error is " + error);
      expect(left < 4s, "it took " + format_duration(left));
      expect_no_communicator_is_left();
    }));
  }
}

TEST_CASE("nccl: an error of a peer is a lost peer; one of the device names the device") {
  const Library library{FAKE_NCCL, {{"FAKE_NCCL_ERROR_AFTER", "1"}}};
  check_all_fine(run(2, library, [](const RankContext& context, const Memory& region) {
    HostGradients gradients;
    const std::unique_ptr<Collective> collective = make_collective(setup_of(context, region, gradients));
    expect(collective->all_reduce(0) == 0, "the control word");
    if (context.rank == 0) {
      const std::string error = error_of(*collective);
      expect(error.find("remote process exited") != std::string::npos, "the error is " + error);
      return;
    }
    gradients.has_failed = true;
    try {
      (void)collective->all_reduce(0);  // Ignoring: it throws.
      expect(false, "the device's fault is not told");
    } catch (const DeviceFault& fault) {
      expect(std::string(fault.what()) == "GPU-1234 has failed", fault.what());
    }
  }));
}

TEST_CASE("nccl: what it refuses is final, and told in its words") {
  for (const auto& [knob, words] : {std::pair("FAKE_NCCL_INIT_ERROR", "ncclCommInitRankConfig: invalid usage"),
                                    std::pair("FAKE_NCCL_CONNECT_ERROR", "a collective failed: invalid usage")}) {
    CAPTURE(knob);
    check_one_is_fine(run(2, {FAKE_NCCL, {{knob, "5"}}}, [&](const RankContext& context, const Memory& region) {
      HostGradients gradients;
      try {
        (void)make_collective(setup_of(context, region, gradients));  // Ignoring: it throws.
        expect(false, "a group was made");
      } catch (const CollectiveSetupError& error) {
        expect(std::string(error.what()).find(words) != std::string::npos, error.what());
      } catch (const CollectiveError&) {
        expect(false, kLeft);
      }
    }));
  }
}

TEST_CASE("nccl: a sum that it refuses is final") {
  const Library library{FAKE_NCCL, {{"FAKE_NCCL_ERROR_AFTER", "0"}, {"FAKE_NCCL_ERROR", "5"}}};
  check_one_is_fine(run(2, library, [](const RankContext& context, const Memory& region) {
    HostGradients gradients;
    const std::unique_ptr<Collective> collective = make_collective(setup_of(context, region, gradients));
    try {
      (void)collective->all_reduce(0);  // Ignoring: it throws.
      expect(false, "the sum was made");
    } catch (const CollectiveSetupError& error) {
      expect(std::string(error.what()).find("invalid usage") != std::string::npos, error.what());
    } catch (const CollectiveError&) {
      expect(false, kLeft);
    }
  }));
}

TEST_CASE("nccl: a device that fails before the first sum is named") {
  for (const char* knob : {"FAKE_NCCL_INIT_ERROR", "FAKE_NCCL_CONNECT_ERROR", "FAKE_NCCL_ERROR_AFTER"}) {
    CAPTURE(knob);
    const bool in_sum = std::string(knob) == "FAKE_NCCL_ERROR_AFTER";
    const Library library{FAKE_NCCL, {{knob, in_sum ? "0" : "1"}, {"FAKE_NCCL_ERROR", "1"}}};
    check_all_fine(run(2, library, [](const RankContext& context, const Memory& region) {
      HostGradients gradients;
      gradients.has_failed = true;
      try {
        (void)make_collective(setup_of(context, region, gradients))->all_reduce(0);  // Ignoring: it throws.
        expect(false, "the device's fault is not told");
      } catch (const DeviceFault& fault) {
        expect(std::string(fault.what()) == "GPU-1234 has failed", fault.what());
      }
    }));
  }
}

TEST_CASE("nccl: calls that wait by the environment do not") {
  const Library library{FAKE_NCCL, {{"NCCL_COMM_BLOCKING", "1"}}};
  check_all_fine(run(2, library, [](const RankContext& context, const Memory& region) {
    HostGradients gradients;
    expect(make_collective(setup_of(context, region, gradients))->all_reduce(0) == 0, "the control word");
  }));
}

TEST_CASE("nccl: a group that does not connect ends at the stall time-out, and says where to look") {
  const Library library{FAKE_NCCL, {{"FAKE_NCCL_HANG_INIT", "1"}, {"FAKE_NCCL_RANK", "1"}}};
  const std::vector<std::string> errors = run(2, library, [](const RankContext& context, const Memory& region) {
    HostGradients gradients;
    CollectiveSetup setup = setup_of(context, region, gradients);
    setup.stall_timeout = 500ms;
    const std::unique_ptr<Collective> collective = make_collective(setup);
    (void)collective->all_reduce(0);  // Ignoring: the other rank never comes.
  });
  CHECK_THAT(errors[1], Catch::Contains("the 2 ranks are not connected for 500ms"));
  CHECK_THAT(errors[1], Catch::Contains("NCCL_DEBUG=INFO"));
  CHECK(errors[0] != "");
}

TEST_CASE("nccl: a library that is missing, old or not whole is named, with what to do") {
  for (const auto& [library, words] :
       {std::pair("/does/not/exist/libnccl.so.2", "/does/not/exist/libnccl.so.2: cannot open shared object file"),
        std::pair(FAKE_NCCL_WITHOUT_ABORT, "has no function ncclCommAbort")}) {
    const std::string error = setup_error(library);
    CHECK_THAT(error, Catch::Contains(words));
    CHECK_THAT(error, Catch::Contains("scripts/setup --cuda") && Catch::Contains("SGD_NCCL_LIBRARY"));
  }
  ::setenv("FAKE_NCCL_VERSION", "21200", 1);
  const std::string error = setup_error(FAKE_NCCL);
  ::unsetenv("FAKE_NCCL_VERSION");
  CHECK_THAT(error, Catch::Contains("is NCCL 2.12.0, and 2.19.0 is the least"));
  CHECK(setup_error(FAKE_NCCL) == "");
  CHECK(nccl_version_text(2804) == "2.8.4");
}

}  // namespace sgd::worker::nccl_test
