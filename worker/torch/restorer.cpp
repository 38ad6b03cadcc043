#include "worker/torch/restorer.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "common/checkpoint/scan.hpp"
#include "worker/torch/checkpoint_reader.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

namespace fs = std::filesystem;

/// What one rank tells all; a leader's `slot` and `live_step` are its node's.
nlohmann::json to_json(int node, const std::optional<MemorySlot>& slot, const std::optional<std::int64_t>& live_step) {
  nlohmann::json out;
  out["node"] = node;
  if (live_step) out["live_step"] = *live_step;
  if (!slot) return out;
  nlohmann::json& told = out["slot"];
  told["index"] = slot->index;
  told["generation"] = slot->generation;
  told["sequence"] = slot->sequence;
  told["step"] = slot->point.step;
  told["epoch"] = slot->point.epoch;
  told["validating"] = slot->point.validating;
  told["consumed"] = slot->point.consumed;
  return out;
}

MemoryOffer offer_of(Rank rank, const nlohmann::json& json) {
  MemoryOffer offer;
  offer.rank = rank;
  offer.node = json.at("node");
  const nlohmann::json& told = json.at("slot");
  offer.slot.index = told.at("index");
  offer.slot.generation = told.at("generation");
  offer.slot.sequence = told.at("sequence");
  offer.slot.point = {told.at("step"), told.at("epoch"), told.at("validating"), told.at("consumed")};
  return offer;
}

TrainingState unpack_state(std::string text) {
  Result<TrainingState> parsed = unpack_training_state(std::move(text));
  if (!parsed) throw std::runtime_error("the state to resume from: " + parsed.error().message);
  return std::move(parsed).value();
}

std::string packed(const TrainingState& state) {
  const std::string head = packed_head(state);
  return joined(packed_pieces(head, state));
}

/// How often all ranks hear how far a fetch is.
constexpr Duration kFetchNews = std::chrono::milliseconds(500);

/// The generations of another run are counted from its own start: against this run's they are nothing.
Generation generation_here(const std::string& path, const std::string& run_dir, Generation written) {
  std::error_code ignored;
  const fs::path own = (fs::path(run_dir) / checkpoint::kDirectory).lexically_normal();
  const fs::path folder = fs::path(path).lexically_normal().parent_path();
  // On a node that has just joined the folder may be missing.
  return folder == own || fs::equivalent(folder, own, ignored) ? written : 0;
}

}  // namespace

Restorer::Restorer(const RestoreSetup& setup) : setup_(setup), state_(state_parts(setup.tensors)) {
  if (setup_.memory_fd < 0) return;
  Result<std::unique_ptr<MemoryCheckpoint>> region = MemoryCheckpoint::attach(setup_.memory_fd, state_.layout);
  if (!region) throw EnvironmentError(region.error().message);
  region_ = std::move(region).value();
}

Restorer::~Restorer() = default;

Restored Restorer::run() {
  Restored restored;
  for (bool done = false; !done;) {
    offer_and_gather();
    const Decision decision = agree_on_decision();
    restored.source = decision.source;
    restored.path = decision.path;
    done = decision.source != RestoreSource::kMemory || read_memory(restored);
  }
  if (restored.source == RestoreSource::kDisk) {
    if (reader_) reader_->read_tensors(setup_.tensors);
    share(0, reader_ ? packed(reader_->state()) : "", restored);
  } else if (restored.source == RestoreSource::kFresh) {
    if (was_damaged_)
      throw EnvironmentError(
          "the memory checkpoints are damaged, and there is no other: training starts from the beginning");
    share(0, "", restored);
  }
  const std::int64_t step = restored.state ? restored.state->step : 0;
  if (live_step_) restored.redone = std::max<std::int64_t>(*live_step_ - step, 0);
  restored.region = std::move(region_);
  // A rank that goes on has proof that the others have read: slots and regions may change from here.
  setup_.collective.barrier();
  return restored;
}

void Restorer::offer_and_gather() {
  std::optional<MemorySlot> slot;
  std::optional<std::int64_t> live_step;
  if (region_ && leads_node()) {
    slot = region_->newest();
    live_step = region_->live_step();
  }
  const std::vector<std::string> told =
      setup_.collective.all_gather(to_json(setup_.assignment.node_rank, slot, live_step).dump());
  offers_.clear();
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    const nlohmann::json json = nlohmann::json::parse(told[rank]);
    if (json.contains("slot")) offers_.push_back(offer_of(static_cast<Rank>(rank), json));
    if (json.contains("live_step"))
      live_step_ = std::max(live_step_.value_or(0), json["live_step"].get<std::int64_t>());
  }
}

std::optional<Restorer::Decision> Restorer::decide() {
  const std::optional<MemoryOffer> memory = newest(offers_);
  const std::string& run_dir = setup_.assignment.run_dir;
  for (; candidate_ < setup_.assignment.resume_from.size(); ++candidate_) {
    const std::string& path = setup_.assignment.resume_from[candidate_];
    std::error_code ignored;
    const auto name = checkpoint::parse_directory_name(fs::path(path).filename().string());
    if (name && (is_fetching_ || !fs::exists(path, ignored))) {
      // The network is not asked for what memory is newer than.
      const DiskOffer offer{generation_here(path, run_dir, name->generation), name->step};
      if (choose(memory, offer) == RestoreSource::kMemory) break;
      const Fetch fetched = fetch(path);
      if (fetched == Fetch::kOnItsWay) return std::nullopt;
      if (fetched == Fetch::kMissing) continue;
    }
    Result<checkpoint::Manifest> manifest = checkpoint::read_manifest(path);
    if (!manifest) {
      reject(path, manifest.error().message);
      continue;
    }
    const Generation generation = generation_here(path, run_dir, manifest.value().generation);
    if (choose(memory, DiskOffer{generation, manifest.value().step}) == RestoreSource::kMemory) break;
    try {
      reader_ = std::make_unique<CheckpointReader>(path);
      return Decision{RestoreSource::kDisk, path};
    } catch (const std::runtime_error& error) {
      reject(path, error.what());
    }
  }
  return Decision{choose(memory, std::nullopt), ""};
}

/// The first call asks; the others wait a moment.
Restorer::Fetch Restorer::fetch(const std::string& path) {
  if (!is_fetching_) {
    if (Status asked = setup_.link.ask_for(path); !asked) throw EnvironmentError(asked.error().message);
    is_fetching_ = true;
    return Fetch::kOnItsWay;
  }
  const std::optional<link::Fetched> fetched = setup_.link.wait_fetched(kFetchNews);
  if (!fetched) return Fetch::kOnItsWay;
  is_fetching_ = false;
  if (fetched->error.empty()) return Fetch::kHere;
  // Nothing is known of the checkpoint then, and to do without it would be to lose what it holds.
  if (!fetched->missing) throw EnvironmentError(path + " cannot be fetched: " + fetched->error);
  reject(path, fetched->error);
  return Fetch::kMissing;
}

Restorer::Decision Restorer::agree_on_decision() {
  Progress& progress = setup_.link.progress();
  for (;;) {
    nlohmann::json json;
    if (setup_.assignment.rank == 0) {
      if (const std::optional<Decision> own = decide()) {
        json["source"] = own->source;
        json["path"] = own->path;
      } else {
        json["fetched"] = setup_.link.fetched_bytes();
      }
    }
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const nlohmann::json told = nlohmann::json::parse(setup_.collective.all_gather(text).front());
    if (!told.contains("fetched")) {
      progress.phase = Progress::Phase::kStarting;
      return {told.at("source").get<RestoreSource>(), told.at("path").get<std::string>()};
    }
    // Every rank tells its agent that there is progress: nobody stands still who waits for a transfer that goes on.
    progress.phase = Progress::Phase::kFetching;
    progress.fetched = told.at("fetched").get<std::int64_t>();
  }
}

bool Restorer::read_memory(Restored& restored) {
  const MemoryOffer winner = newest(offers_).value();
  std::optional<MemoryOffer> own;
  for (const MemoryOffer& offer : offers_) {
    if (offer.node == setup_.assignment.node_rank && same_state(offer, winner)) own = offer;
  }
  const auto holders = std::count_if(offers_.begin(), offers_.end(),
                                     [&winner](const MemoryOffer& offer) { return same_state(offer, winner); });
  const bool everywhere = static_cast<int>(holders) == setup_.assignment.node_count;
  std::string text;
  std::string damage;
  if (everywhere || setup_.assignment.rank == winner.rank) {
    if (!region_ || !own) throw EnvironmentError("this rank was not given its node's memory checkpoint");
    Result<std::string> read = region_->read(own->slot.index, state_.parts);
    (read ? text : damage) = read ? std::move(read).value() : read.error().message;
  }
  if (!all_whole(own, damage)) return false;
  if (own) restored.slot = own->slot.index;
  if (everywhere) {
    restored.state = unpack_state(std::move(text));
  } else {
    share(winner.rank, std::move(text), restored);
  }
  return true;
}

bool Restorer::all_whole(const std::optional<MemoryOffer>& own, const std::string& damage) {
  const int node = setup_.assignment.node_rank;
  const nlohmann::json verdict = {{"node", node}, {"damage", damage}};
  bool whole = true;
  bool is_discarded = false;
  for (const std::string& text : setup_.collective.all_gather(verdict.dump())) {
    const nlohmann::json told = nlohmann::json::parse(text);
    const std::string reason = told.at("damage");
    if (reason.empty()) continue;
    whole = false;
    if (!leads_node() || !own || told.at("node") != node || std::exchange(is_discarded, true)) continue;
    std::fprintf(stderr, "sgd-worker: warning: the memory checkpoint of generation %llu, sequence %u is damaged: %s\n",
                 static_cast<unsigned long long>(own->slot.generation), own->slot.sequence, reason.c_str());
    region_->discard(own->slot.index);
  }
  was_damaged_ = was_damaged_ || !whole;
  return whole;
}

void Restorer::share(Rank root, std::string text, Restored& restored) {
  // The text holds what all ranks keep of their own: it may be longer than what can be gathered.
  const std::vector<std::string> sizes = setup_.collective.all_gather(std::to_string(text.size()));
  text.resize(std::stoull(sizes[static_cast<std::size_t>(root)]));
  setup_.collective.broadcast(std::as_writable_bytes(std::span(text)), root);
  const bool is_fresh = text.empty();
  if (!is_fresh) restored.state = unpack_state(std::move(text));
  // A fresh optimizer is the same on every rank.
  for (std::size_t i = 0; i < state_.parts.size(); ++i) {
    if (!is_fresh || !state_.is_of_optimizer(i)) setup_.collective.broadcast(state_.parts[i], root);
  }
}

void Restorer::reject(const std::string& path, const std::string& reason) {
  std::fprintf(stderr, "sgd-worker: warning: %s is not used: %s\n", path.c_str(), reason.c_str());
  link::CheckpointRejected rejected;
  rejected.path = path;
  rejected.reason = reason;
  if (Status sent = setup_.link.send(rejected); !sent) throw EnvironmentError(sent.error().message);
}

}  // namespace sgd::worker
