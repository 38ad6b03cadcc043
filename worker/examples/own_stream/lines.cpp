// A file of lines "x y" that may be larger than memory, read from its beginning to its end. All ranks read a round of
// world_size * n lines, and each keeps its part: the beginning of the round is the place of all of them, so a run goes
// on from it with any number of workers.
#include <algorithm>
#include <fstream>

#include <sgd/sgd.hpp>

class Lines : public sgd::IterableDataset {
 public:
  explicit Lines(const nlohmann::json& settings) : settings_(settings) {}  // Opens nothing: begin() does.

  sgd::SampleShape shape() const override { return {{1}, 1}; }  // For the model that the job names.

  void begin(const sgd::Pass& pass) override {
    pass_ = pass;
    path_ = settings_.at(pass.split == sgd::Split::kTrain ? "train" : "validation");
    file_ = std::ifstream(path_);
    if (!file_) throw std::runtime_error(path_ + " cannot be read");
    place_ = 0;
  }

  std::optional<sgd::Batch> next(std::int64_t batch_size) override {
    std::vector<float> xs, ys;
    float x = 0, y = 0;
    while (static_cast<std::int64_t>(xs.size()) < batch_size * pass_.world_size && file_ >> x >> y) {
      xs.push_back(x);
      ys.push_back(y);
    }
    if (!file_ && !file_.eof())
      throw std::runtime_error(path_ + ": a line behind byte " + std::to_string(place_) + " is no two numbers");
    place_ = file_ ? static_cast<std::int64_t>(file_.tellg()) : place_end();
    const auto read = static_cast<std::int64_t>(xs.size());
    const std::int64_t first = read * pass_.rank / pass_.world_size;
    const std::int64_t count = read * (pass_.rank + 1) / pass_.world_size - first;
    if (count == 0) return std::nullopt;  // The rank's part of the pass is over.
    const auto part = [&](std::vector<float>& all) { return torch::from_blob(all.data() + first, {count, 1}).clone(); };
    return sgd::Batch{part(xs), part(ys)};
  }

  nlohmann::json state() const override { return place_; }
  void load_state(const nlohmann::json& state) override {
    place_ = state;
    file_.seekg(place_);
  }
  void load_states(const std::vector<nlohmann::json>& states) override { load_state(states.front()); }

 private:
  std::int64_t place_end() {
    file_.clear();
    file_.seekg(0, std::ios::end);
    return file_.tellg();
  }

  nlohmann::json settings_;
  sgd::Pass pass_;
  std::string path_;
  std::ifstream file_;
  std::int64_t place_ = 0;  // In bytes: where the next round begins.
};

SGD_REGISTER_DATASET("lines", Lines, R"({
  "train": {"type": "string", "x-path": true},
  "validation": {"type": "string", "x-path": true}
})");
