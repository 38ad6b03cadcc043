// Turns over streams whose end only their readers find: the same on every rank, whoever ends first, and a place to go
// on from that is that of the batches that are done.

#include "worker/torch/stream_batches.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <catch2/catch.hpp>

namespace sgd::worker {
namespace {

using namespace std::chrono_literals;
using Next = PassBatches::Next;

/// Where the threads of one process meet in place of ranks.
class Meeting {
 public:
  explicit Meeting(std::size_t ranks) : given_(ranks), taken_(ranks) {}

  std::vector<std::string> gather(std::size_t rank, const std::string& bytes) {
    std::unique_lock lock(mutex_);
    given_[rank] = bytes;
    const std::uint64_t round = round_;
    if (++here_ == given_.size()) {
      here_ = 0;
      ++round_;
      taken_ = given_;
      all_.notify_all();
    } else if (!all_.wait_for(lock, 60s, [&] { return round_ != round; })) {
      throw CollectiveError("the others do not come");
    }
    return taken_;  // None comes for the next round before all have left this one: it needs all of them.
  }
  [[nodiscard]] int size() const { return static_cast<int>(given_.size()); }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<std::string> given_;
  std::vector<std::string> taken_;
  std::size_t here_ = 0;
  std::uint64_t round_ = 0;
};

class MeetingRank final : public Collective {
 public:
  MeetingRank(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return meeting_.size(); }
  std::uint32_t agree(std::uint32_t word, const Call&) override {
    std::uint32_t all = 0;
    for (const std::string& one : all_gather(std::to_string(word))) all |= static_cast<std::uint32_t>(std::stoul(one));
    return all;
  }
  std::vector<std::string> all_gather(const std::string& bytes) override {
    return meeting_.gather(static_cast<std::size_t>(rank_), bytes);
  }
  std::span<float> gradients() override { return {}; }
  std::uint32_t all_reduce(std::uint32_t, std::size_t, std::size_t) override { return 0; }
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  void abort() noexcept override {}

 private:
  Meeting& meeting_;
  int rank_;
};

/// `batches` of two samples, numbered from 0; the state is the number of the next one.
class Counted final : public IterableDataset {
 public:
  explicit Counted(int batches, std::function<Batch(int)> make = {}) : batches_(batches), make_(std::move(make)) {}
  void begin(const Pass& pass) override {
    next_ = 0;
    pass_ = pass.number;
  }
  std::optional<Batch> next(std::int64_t) override {
    if (next_ == batches_) return std::nullopt;
    const int number = next_++;
    if (make_) return make_(number);
    return Batch{at::full({2}, static_cast<double>(number)), at::zeros({2})};
  }
  nlohmann::json state() const override { return next_; }
  void load_state(const nlohmann::json& state) override { next_ = state.get<int>(); }

 private:
  int batches_;
  std::function<Batch(int)> make_;
  int next_ = 0;
  int pass_ = 0;
};

struct Setup {
  Split split = Split::kTrain;
  int threads = 0;
};

/// `use` for each rank, whose stream has so many batches: what it has thrown, or nothing, by rank.
std::vector<std::string> on_ranks(const std::vector<int>& batches, const Setup& setup,
                                  const std::function<void(StreamBatches&, int)>& use) {
  Meeting meeting(batches.size());
  std::vector<std::string> thrown(batches.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < static_cast<int>(batches.size()); ++rank)
    ranks.emplace_back([&, rank] {
      MeetingRank collective(meeting, rank);
      StreamPlace place{setup.split, rank, meeting.size(), 2};
      place.loader.threads = setup.threads;
      const int count = batches[static_cast<std::size_t>(rank)];
      StreamBatches stream(
          std::make_unique<StreamReader>(OpenedStream{"numbers", std::make_shared<Counted>(count)}, place), collective);
      try {
        stream.begin_pass(1);
        use(stream, rank);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return thrown;
}

/// "b" a batch, "i" idle, "|" the end; a capital where it is known to be the last.
std::string turns(StreamBatches& stream, bool wants_last = false) {
  std::string text;
  while (true) {
    const Next next = stream.look(wants_last);
    if (next == Next::kEnd) return text + "|";
    if (next == Next::kBatch && stream.take().features[0].item<double>() != static_cast<double>(text.size()))
      return text + "?";
    const bool is_last = wants_last && next == Next::kBatch && stream.is_last();
    text += next == Next::kIdle ? "i" : is_last ? "B" : "b";
    stream.advance();
  }
}

std::vector<std::string> turns_of(const std::vector<int>& batches, Split split, bool wants_last = false,
                                  int threads = 0) {
  std::vector<std::string> all(batches.size());
  const auto thrown = on_ranks(batches, {split, threads}, [&](StreamBatches& stream, int rank) {
    all[static_cast<std::size_t>(rank)] = turns(stream, wants_last);
  });
  for (const std::string& error : thrown) CHECK(error.empty());
  return all;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("streams: a pass of training ends for all with the first rank that has no more") {
  for (const int threads : {0, 1}) {
    CHECK(turns_of({3, 3}, Split::kTrain, false, threads) == Words{"bbb|", "bbb|"});
    CHECK(turns_of({5, 2, 4}, Split::kTrain, false, threads) == Words{"bb|", "bb|", "bb|"});
  }
}

TEST_CASE("streams: in validation each rank reads its part to the end and stands idle in the others' turns") {
  for (const int threads : {0, 1}) {
    CHECK(turns_of({3, 1}, Split::kValidation, false, threads) == Words{"bbb|", "bii|"});
    CHECK(turns_of({0, 2}, Split::kValidation, false, threads) == Words{"ii|", "bb|"});
  }
}

TEST_CASE("streams: the last batch is known as that before it is done, to each rank of its own") {
  CHECK(turns_of({3, 3}, Split::kTrain, true) == Words{"bbB|", "bbB|"});
  CHECK(turns_of({4, 2}, Split::kTrain, true) == Words{"bB|", "bB|"});
  CHECK(turns_of({3, 1}, Split::kValidation, true) == Words{"bbB|", "Bii|"});
}

TEST_CASE("streams: a pass without a batch is refused on every rank, with the ranks that have none") {
  const auto look = [](StreamBatches& stream, int) { (void)stream.look(false); };
  for (const std::string& error : on_ranks({2, 0, 0}, {}, look))
    CHECK(error.find("gives ranks 1, 2 no batch to train on in pass 1") != std::string::npos);
  for (const std::string& error : on_ranks({0, 0}, {Split::kValidation}, look))
    CHECK(error.find("gives ranks 0, 1 no batch to validate on") != std::string::npos);
}

TEST_CASE("streams: the place to go on from is that of what is done, however far ahead is read") {
  for (const int threads : {0, 1}) {
    const auto thrown = on_ranks({6, 6}, {Split::kTrain, threads}, [](StreamBatches& stream, int) {
      for (int turn = 0; turn < 3; ++turn) {
        (void)stream.look(true);
        (void)stream.take();
        if (stream.reader().state() != turn) throw std::runtime_error("ahead of what is done");
        stream.advance();
      }
      if (stream.reader().state() != 3 || stream.consumed() != 3) throw std::runtime_error("not where it is");
      stream.resume(1, 2, {2, 2});
      if (stream.look(false) != Next::kBatch || stream.take().features[0].item<double>() != 2)
        throw std::runtime_error("another batch than the one that came behind");
      stream.advance();
      int left = 0;
      for (; stream.look(false) == Next::kBatch; stream.advance(), ++left) (void)stream.take();
      if (left != 3) throw std::runtime_error("not the batches that are left");
    });
    for (const std::string& error : thrown) CHECK(error == "");
  }
}

TEST_CASE("streams: a pass that is over is that until the next begins, which starts anew") {
  const auto thrown = on_ranks({2, 3}, {}, [](StreamBatches& stream, int) {
    for (int pass = 1; pass <= 2; ++pass) {
      if (stream.is_pass_done()) throw std::runtime_error("over before it was looked at");
      if (turns(stream) != "bb|" || !stream.is_pass_done()) throw std::runtime_error("not the whole pass");
      stream.begin_pass(pass + 1);
      if (stream.pass() != pass + 1 || stream.consumed() != 0) throw std::runtime_error("not at the beginning");
    }
  });
  for (const std::string& error : thrown) CHECK(error == "");
}

TEST_CASE("streams: another number of ranks is refused where the data set cannot divide what is left") {
  for (const std::string& error : on_ranks({4, 4}, {}, [](StreamBatches&stream, int) { stream.resume(3, 1, {1}); })) {
    CHECK(error.find("\"numbers\" cannot go on in the middle of pass 3, which 1 ranks have started, with 2") !=
          std::string::npos);
    CHECK(error.find("\"min_workers\": 1") != std::string::npos);
  }
}

TEST_CASE("streams: what next() gives is checked, and what it throws comes where its batch would") {
  struct Row {
    const char* said;
    std::function<Batch(int)> make;
  };
  const std::vector<Row> rows = {
      {"broken file", [](int) -> Batch { throw std::runtime_error("broken file"); }},
      {"leaves features undefined", [](int) { return Batch{}; }},
      {"leaves target undefined",
       [](int) {
         return Batch{at::zeros({2}), {}};
       }},
      {"1 to 2 samples",
       [](int) {
         return Batch{at::zeros({3}), at::zeros({3})};
       }},
      {"1 to 2 samples",
       [](int) {
         return Batch{at::zeros({0}), at::zeros({0})};
       }},
      {"gives target with the shape [1]",
       [](int) {
         return Batch{at::zeros({2}), at::zeros({1})};
       }},
  };
  for (const Row& row : rows) {
    INFO(row.said);
    StreamReader reader(OpenedStream{"numbers", std::make_shared<Counted>(2, row.make)}, {Split::kTrain, 0, 1, 2});
    reader.begin(1);
    CHECK(reader.read());
    CHECK(reader.samples_read() == 0);
    CHECK_THROWS_WITH(reader.take(), Catch::Contains(row.said));
    CHECK_FALSE(reader.read());  // Nothing is read behind an error.
  }
}

}  // namespace sgd::worker
