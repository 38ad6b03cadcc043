#include <sgd/trainer.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

#include "common/exit_codes.hpp"
#include "launcher/client/launcher_process.hpp"
#include "launcher/client/run_folder.hpp"

namespace sgd {
namespace {

namespace fs = std::filesystem;

constexpr client::Milliseconds kPoll(20);  // Between two looks at a file that grows.
constexpr client::Milliseconds kHour = std::chrono::hours(1);
constexpr std::size_t kWordsBytesMax = 64 << 10;

constexpr const char* kInactive =
    "This Trainer is not active. It is either shutdown already or never started in the first place. Either create a "
    "new Trainer or start this one.";
constexpr const char* kBusy = "a run of this Trainer goes on: read its run_iterator() to the end, or destroy it";

std::string with_time(const char* format) {
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  (void)::localtime_r(&seconds, &local);
  char text[32] = "";
  (void)std::strftime(text, sizeof text, format, &local);
  return text;
}

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

void set(std::vector<std::string>& words, const std::string& path, const nlohmann::json& value) {
  words.insert(words.end(), {"--set", path + "=" + value.dump()});
}

/// The JSON that sgd-launch has printed, which comes behind its warnings; null: none.
nlohmann::json printed_json(const std::string& said) {
  for (std::size_t at = 0; at < said.size();) {
    if (said[at] == '[' || said[at] == '{') {
      nlohmann::json json = nlohmann::json::parse(said.substr(at), nullptr, false);
      if (!json.is_discarded()) return json;
    }
    const std::size_t end = said.find('\n', at);
    at = end == std::string::npos ? said.size() : end + 1;
  }
  return nullptr;
}

/// With a function these have no meaning, and a job that has them beside one is refused
/// (common/job/cross_checks.cpp). Its other settings of training are the function's to use.
void leave_out_what_functions_lack(nlohmann::json& training) {
  for (const char* key : {"model", "operator", "early_stop", "metrics", "profile", "validate_every", "validate_only"})
    training.erase(key);
  const nlohmann::json scheduler = training.value("scheduler", nlohmann::json());
  const nlohmann::json& first = scheduler.is_array() && !scheduler.empty() ? scheduler.front() : scheduler;
  const bool follows_a_metric = first.is_object() && first.value("type", nlohmann::json()) == "reduce_on_plateau";
  if (follows_a_metric) training.erase("scheduler");
}

}  // namespace

namespace client {

/// One start of sgd-launch, and what is known of it.
struct Launch {
  std::string run_dir;
  std::string log;
  std::uint64_t log_from = 0;
  std::string summary_before;
  bool says_json = false;  ///< It prints JSON where it has ended well.
  std::shared_ptr<client::LauncherProcess> process;

  [[nodiscard]] std::string words() const {
    std::string said = client::tail_of(log, log_from);
    if (said.size() > kWordsBytesMax) said.erase(0, said.size() - kWordsBytesMax);
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return said;
  }

  /// After its end: the summary. Throws what has become of it.
  [[nodiscard]] nlohmann::json finish() const {
    const std::string text = client::text_of(run_dir + "/summary.json");
    nlohmann::json summary;
    if (text != summary_before) summary = nlohmann::json::parse(text, nullptr, false);
    std::optional<int> code = process->code();
    if (!code && summary.is_object()) {
      const nlohmann::json told = summary.value("exit_code", nlohmann::json());
      if (told.is_number_integer()) code = told.get<int>();
    }
    if (!code && says_json && !printed_json(client::tail_of(log, log_from)).is_null()) code = exit_code::kSucceeded;
    if (code == exit_code::kSucceeded) return summary;
    const std::string said = words();
    if (!code) throw LauncherLost("how sgd-launch has ended, this program has asked before the Trainer did\n" + said);
    if (*code < 0) throw LauncherLost("sgd-launch was ended by signal " + std::to_string(-*code) + "\n" + said);
    if (*code == exit_code::kUsage && !summary.is_object()) throw JobError(said);
    if (*code == exit_code::kCancelled || *code >= exit_code::kTimeout) throw TrainingStopped(said, *code, summary);
    throw TrainingFailed(said, *code, summary);
  }
};

}  // namespace client

using client::Launch;

struct Trainer::Impl {
  nlohmann::json job;    // Null: it is in a file.
  std::string job_file;  // "-": it is given as standard input.
  TrainerOptions options;
  bool is_active = false;
  nlohmann::json settings;  // The job with its defaults since start(): by dotted paths.
  std::string logdir;
  std::map<std::string, int> numbers;  // The last one of each kind of folder.
  std::string run_dir;                 // The newest run that trains: its checkpoints count.
  std::string base;                    // The checkpoint that it has begun with.
  bool is_changed = false;             // Its job is not ours alone: one call has changed it.
  std::string origin;                  // What load() has named, until a run begins with it.
  std::weak_ptr<client::LauncherProcess> running;

  /// A job as standard input, and the folder that its paths are relative to.
  struct Source {
    std::string text;
    std::string folder;
  };

  void check_active() const {
    if (!is_active) throw TrainerInactive(kInactive);
    const auto process = running.lock();
    if (process && !process->has_ended(client::Milliseconds(0))) throw TrainerError(kBusy);
  }

  [[nodiscard]] std::string program() const {
    const char* given = std::getenv("SGD_LAUNCH");
    return given != nullptr && *given != '\0' ? given : options.launcher;
  }

  void check(const Changes& changes) const {
    check_active();
    if (!changes.is_null() && !changes.is_object())
      throw TrainerError("changes are a JSON object of dotted paths and their values, got " + changes.dump());
  }

  /// What the job says at `path` in a call with `changes`; null: nothing.
  [[nodiscard]] nlohmann::json said(const Changes& changes, const std::string& path) const {
    return changes.contains(path) ? changes.at(path) : settings.value(path, nlohmann::json());
  }

  /// A folder that no run has had, those of another trainer with this logdir included.
  [[nodiscard]] std::string next_dir(const std::string& kind) {
    for (;;) {
      char number[16] = "";
      (void)std::snprintf(number, sizeof number, "_%03d", ++numbers[kind]);
      std::string dir = logdir + "/" + kind + number;
      std::error_code error;
      // A run that was refused has left only its log.
      if (!fs::exists(dir, error) && !fs::exists(dir + ".log", error)) return dir;
    }
  }

  [[nodiscard]] Source source() const { return {job.is_null() ? std::string() : job.dump(), {}}; }

  /// The same job with a function in place of what trains.
  [[nodiscard]] Source source_with(const nlohmann::json& function) const {
    const bool is_file = job.is_null();
    nlohmann::json changed = is_file ? nlohmann::json::parse(client::text_of(job_file), nullptr, false, true) : job;
    if (!changed.is_object() || !changed.value("training", nlohmann::json::object()).is_object())
      throw JobError(job_file + ": the job has no object \"training\"");
    changed.erase("resume_from");  // The state of what trains is not the function's.
    nlohmann::json& training = changed["training"];
    leave_out_what_functions_lack(training);
    training["function"] = function;
    return {changed.dump(), is_file ? fs::path(job_file).parent_path().string() : std::string()};
  }

  [[nodiscard]] Launch launch(std::vector<std::string> words, const std::string& dir, const Changes& changes) {
    return launch(std::move(words), dir, changes, source());
  }

  [[nodiscard]] Launch launch(std::vector<std::string> words, const std::string& dir, const Changes& changes,
                              const Source& from) {
    Launch one;
    one.run_dir = dir;
    one.log = dir + ".log";
    one.log_from = client::size_of(one.log);
    one.summary_before = client::text_of(dir + "/summary.json");
    words.insert(words.end(), {"--quiet", "--no-color", "--lifeline", "3"});
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    for (const auto& [path, value] : changes.items()) set(words, path, value);
    one.process = std::make_shared<client::LauncherProcess>(
        client::LaunchSettings{program(), std::move(words), from.text, one.log, from.folder});
    running = one.process;
    return one;
  }

  [[nodiscard]] std::string address() const { return options.address.empty() ? "local" : options.address; }
  [[nodiscard]] bool is_on_cluster() const { return address() != "local"; }

  [[nodiscard]] std::vector<std::string> new_run(const std::string& file, const std::string& dir) const {
    return {"run", file, "--address", address(), "--run-dir", dir};
  }

  /// What a job's resume_from says for that checkpoint. A cluster knows it by its run, of which it is the newest one.
  [[nodiscard]] std::string origin_of(const std::string& checkpoint) const {
    return is_on_cluster() ? client::run_on_cluster(checkpoint) : checkpoint;
  }

  static nlohmann::json wait(const Launch& one) {
    while (!one.process->has_ended(kHour)) continue;
    return one.finish();
  }

  /// What sgd-launch answers, as JSON; null: it is none. Throws how it has ended.
  [[nodiscard]] nlohmann::json ask(std::vector<std::string> words) const {
    Launch check;
    check.run_dir = logdir + "/check";
    check.log = check.run_dir + ".log";
    check.log_from = client::size_of(check.log);
    check.says_json = true;
    check.process = std::make_shared<client::LauncherProcess>(
        client::LaunchSettings{program(), std::move(words), source().text, check.log, {}});
    (void)wait(check);
    return printed_json(client::tail_of(check.log, check.log_from));
  }

  /// How many epochs are trained where the job's own resume_from has a run begin. 0 where it names nothing, or what is
  /// not found: of that sgd-launch tells when the run is to begin.
  [[nodiscard]] int epochs_of_origin(const Changes& changes) const {
    const nlohmann::json told = said(changes, "resume_from");
    if (!told.is_string()) return 0;
    const std::string named = told.get<std::string>();
    std::error_code error;
    const fs::path folder = job.is_null() ? fs::path(job_file).parent_path() : fs::current_path(error);
    const std::string place = (folder / named).string();
    const bool is_here = !is_on_cluster() && fs::exists(place, error);
    if (is_here && client::is_checkpoint(place)) return client::epochs_done(place);
    // A cluster has runs by their names, and RUN:CHECKPOINT.
    const std::size_t colon = is_on_cluster() ? named.find(':') : std::string::npos;
    const std::string wanted = colon == std::string::npos ? "" : "checkpoints/" + named.substr(colon + 1);
    nlohmann::json listed;
    try {
      listed = ask({"checkpoints", "--json", "--address", address(), is_here ? place : named.substr(0, colon)});
    } catch (const TrainerError&) {  // Ignoring: a folder may be no run and have checkpoints.
    }
    if (!listed.is_object()) listed = nlohmann::json::object();
    for (const nlohmann::json& one : listed.value("checkpoints", nlohmann::json::array())) {
      const bool is_meant = one.value("whole", false) && (wanted.empty() || one.value("path", "") == wanted);
      if (is_meant && one.at("epoch").is_number_integer()) return one.at("epoch").get<int>();
    }
    const std::string newest_there = is_here ? client::newest_checkpoint(place) : std::string();
    return newest_there.empty() ? 0 : client::epochs_done(newest_there);
  }

  /// Of the newest checkpoint, or of none.
  [[nodiscard]] std::string newest() const {
    if (!origin.empty()) return origin;
    const std::string own = run_dir.empty() ? std::string() : client::newest_checkpoint(run_dir);
    return own.empty() ? base : own;
  }

  /// Whether its run's folder is the place for one more epoch of the job as it is.
  [[nodiscard]] bool can_resume(const Changes& changes) const {
    return !is_on_cluster() && changes.empty() && !is_changed && origin.empty() && !run_dir.empty() &&
           !client::newest_checkpoint(run_dir).empty();
  }

  /// The words of a new run that begins with `from`, where it is not empty. A copy: it may be of `origin`, which ends
  /// here.
  [[nodiscard]] std::vector<std::string> begin_run(std::string from, const Changes& changes) {
    const std::string named = from.empty() ? std::string() : origin_of(from);
    run_dir = next_dir("run");
    is_changed = !changes.empty();
    origin.clear();
    base = std::move(from);
    std::vector<std::string> words = new_run(job_file, run_dir);
    if (!named.empty()) set(words, "resume_from", named);
    return words;
  }

  /// Why a run that has ended well, and had begun with `from`, has no report of training in `epoch`.
  [[nodiscard]] std::string why_untrained(const std::string& from, int epoch) const {
    const nlohmann::json state = client::json_of(newest() + "/state.json");
    if (!state.is_object() || state.value("early_stop", nlohmann::json()).is_null())
      return run_dir + ": the run has ended well, and reported nothing of phase \"train\" in epoch " +
             std::to_string(epoch) +
             ", which is what train() returns: call run() for what a function returns, or run_iterator() for all that "
             "it reports";
    std::string reason = client::early_stop_of(run_dir);
    if (reason.empty()) reason = client::early_stop_of(fs::path(from).parent_path().parent_path().string());
    if (reason.empty()) reason = "\"training.early_stop\" has ended it";
    return run_dir + ": training has stopped early after epoch " + std::to_string(epoch - 1) + ": " + reason +
           "; with a larger \"training.early_stop.patience\" it goes on";
  }
};

struct RunIterator::State {
  std::shared_ptr<Trainer::Impl> trainer;
  Launch launch;
  client::LineFollower reports;
  bool is_finished = false;
  nlohmann::json results;

  ~State() {
    if (!is_finished) launch.process->end(true, trainer->options.shutdown_limit);
  }

  void finish() {
    is_finished = true;
    results = client::results_of(launch.finish());
  }
};

RunIterator::RunIterator(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunIterator::RunIterator(RunIterator&&) noexcept = default;
RunIterator::~RunIterator() = default;

std::optional<nlohmann::json> RunIterator::next() {
  while (!state_->is_finished) {
    // In this order: what is written before the end is read after it.
    const bool has_ended = state_->launch.process->has_ended(client::Milliseconds(0));
    while (const auto line = state_->reports.next()) {
      nlohmann::json report = nlohmann::json::parse(*line, nullptr, false);
      if (report.is_object()) return report;
    }
    if (has_ended) {
      state_->finish();
    } else {
      (void)state_->launch.process->has_ended(kPoll);  // Ignoring: it is asked again above.
    }
  }
  return std::nullopt;
}

bool RunIterator::is_finished() const {
  return state_->is_finished;
}

nlohmann::json RunIterator::get_final_results(bool force) {
  if (!state_->is_finished && force) {
    while (!state_->launch.process->has_ended(kHour)) continue;
    state_->finish();
  }
  return state_->results;
}

Trainer::Trainer(const fs::path& job_file, TrainerOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->job_file = absolute(job_file.string());
  impl_->options = std::move(options);
}

Trainer::Trainer(nlohmann::json job, TrainerOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->job = std::move(job);
  impl_->job_file = "-";
  impl_->options = std::move(options);
}

Trainer::Trainer(Trainer&&) noexcept = default;

Trainer::~Trainer() {
  if (impl_) shutdown(true);
}

void Trainer::start() {
  if (impl_->is_active) return;
  if (impl_->logdir.empty()) {
    const std::string wanted =
        absolute(impl_->options.logdir.empty() ? with_time("runs/trainer-%Y%m%d-%H%M%S") : impl_->options.logdir);
    std::error_code error;
    fs::create_directories(impl_->options.logdir.empty() ? fs::path(wanted).parent_path() : fs::path(wanted), error);
    if (error) throw TrainerError(wanted + ": " + error.message());
    impl_->logdir = impl_->options.logdir.empty() ? client::new_folder(wanted) : wanted;
  }
  const nlohmann::json shown = impl_->ask({"config", "show", "--json", impl_->job_file, "--address", impl_->address()});
  impl_->settings = nlohmann::json::object();
  for (const nlohmann::json& one : shown) impl_->settings[one.at("key").get<std::string>()] = one.at("value");
  impl_->is_active = true;
}

nlohmann::json Trainer::train(const Changes& changes) {
  impl_->check(changes);
  if (impl_->said(changes, "training.validate_only") == true)
    throw TrainerError("\"training.validate_only\" trains nothing: call validate(), or leave it out of the job");
  const std::string from = impl_->newest();
  const bool begins_as_the_job_says = from.empty() || changes.contains("resume_from");
  const int epoch = 1 + (begins_as_the_job_says ? impl_->epochs_of_origin(changes) : client::epochs_done(from));
  std::vector<std::string> words =
      impl_->can_resume(changes) ? std::vector<std::string>{"resume", impl_->run_dir} : impl_->begin_run(from, changes);
  set(words, "training.epochs", epoch);
  Changes all = changes;
  // Without a checkpoint each call would train the same epoch anew.
  if (impl_->said(changes, "checkpoint.every") == "never") all["checkpoint.every"] = "epoch";
  (void)Impl::wait(impl_->launch(std::move(words), impl_->run_dir, all));
  nlohmann::json report = client::last_report(impl_->run_dir, "train", epoch);
  if (report.is_null()) throw TrainerError(impl_->why_untrained(from, epoch));
  return report;
}

nlohmann::json Trainer::validate(const Changes& changes) {
  impl_->check(changes);
  const std::string dir = impl_->next_dir("validate");
  std::vector<std::string> words = impl_->new_run(impl_->job_file, dir);
  if (const std::string from = impl_->newest(); !from.empty()) set(words, "resume_from", impl_->origin_of(from));
  set(words, "training.validate_only", true);
  set(words, "checkpoint.every", "never");
  (void)Impl::wait(impl_->launch(std::move(words), dir, changes));
  return client::last_report(dir, "validate", 0);
}

RunIterator Trainer::run_iterator(const Changes& changes) {
  impl_->check(changes);
  std::vector<std::string> words = impl_->begin_run(impl_->origin, changes);
  auto launch = impl_->launch(std::move(words), impl_->run_dir, changes);
  client::LineFollower reports(impl_->run_dir + "/metrics.jsonl");
  return RunIterator(std::unique_ptr<RunIterator::State>(
      new RunIterator::State{impl_, std::move(launch), std::move(reports), false, nullptr}));
}

nlohmann::json Trainer::run(const Changes& changes) {
  return run_iterator(changes).get_final_results(true);
}

nlohmann::json Trainer::apply(const nlohmann::json& function, const Changes& changes) {
  impl_->check(changes);
  const std::string dir = impl_->next_dir("apply");
  const Impl::Source source = impl_->source_with(function);
  return client::results_of(Impl::wait(impl_->launch(impl_->new_run("-", dir), dir, changes, source)));
}

std::string Trainer::save(const std::string& path) const {
  client::copy_checkpoint(path_for_model(), path);
  return path;
}

void Trainer::load(const std::string& path) {
  impl_->check_active();
  if (!client::is_checkpoint(path)) throw TrainerError(path + ": it is no checkpoint");
  (void)impl_->origin_of(absolute(path));  // Throws where the cluster does not know it.
  impl_->origin = absolute(path);
}

std::string Trainer::path_for_model() const {
  impl_->check_active();
  std::string newest = impl_->newest();
  if (newest.empty()) throw TrainerError("there is no checkpoint yet: train(), run() or load() come first");
  return newest;
}

nlohmann::json Trainer::latest_checkpoint() const {
  const std::string newest = impl_->newest();
  if (newest.empty()) return nullptr;
  const nlohmann::json state = client::json_of(newest + "/state.json");
  const nlohmann::json shared = state.is_object() ? state.value("shared", nlohmann::json()) : nlohmann::json();
  return shared.is_object() ? shared.value("saved", nlohmann::json()) : nlohmann::json();
}

std::string Trainer::latest_checkpoint_path() const {
  return impl_->newest();
}

std::string Trainer::latest_checkpoint_dir() const {
  return impl_->run_dir.empty() ? std::string() : impl_->run_dir + "/checkpoints";
}

std::string Trainer::latest_run_dir() const {
  return impl_->run_dir;
}

std::string Trainer::logdir() const {
  return impl_->logdir;
}

void Trainer::shutdown(bool force) {
  impl_->is_active = false;
  if (const auto process = impl_->running.lock()) process->end(force, impl_->options.shutdown_limit);
}

}  // namespace sgd
