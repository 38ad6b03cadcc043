// Calls of trainers, one a line: {"trainer": NAME, "call": "train", "with": ...}; the answer is {"ok": ...}, or
// {"error": TYPE, "words": ...}.
#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include <sgd/trainer.hpp>

namespace {

using Json = nlohmann::json;

struct Driven {
  std::unique_ptr<sgd::Trainer> trainer;
  std::unique_ptr<sgd::RunIterator> reports;
};

std::map<std::string, Driven>& all() {
  static std::map<std::string, Driven> trainers;
  return trainers;
}

sgd::TrainerOptions options_of(const Json& with) {
  sgd::TrainerOptions options;
  options.logdir = with.value("logdir", "");
  options.address = with.value("address", "");
  options.launcher = with.value("launcher", options.launcher);
  options.shutdown_limit = std::chrono::seconds(with.value("shutdown_limit_s", 60));
  for (const Json& word : with.value("arguments", Json::array())) options.arguments.push_back(word);
  return options;
}

void make(Driven& one, const Json& with) {
  const Json& job = with.at("job");
  one.trainer = job.is_string() ? std::make_unique<sgd::Trainer>(job.get<std::string>(), options_of(with))
                                : std::make_unique<sgd::Trainer>(job, options_of(with));
}

Json next(Driven& one) {
  std::optional<Json> report = one.reports->next();
  return report ? std::move(*report) : Json();
}

/// Epochs of several trainers, each in a thread of its own.
Json together(const Json& with) {
  std::vector<std::thread> threads;
  std::vector<Json> results(with.size());
  for (std::size_t i = 0; i < with.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = all().at(with[i].get<std::string>()).trainer->train(); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

Json places(const sgd::Trainer& trainer) {
  return {{"checkpoint", trainer.latest_checkpoint()},
          {"path", trainer.latest_checkpoint_path()},
          {"dir", trainer.latest_checkpoint_dir()},
          {"run_dir", trainer.latest_run_dir()},
          {"logdir", trainer.logdir()}};
}

Json call(const std::string& name, Driven& one, const Json& with) {
  if (name == "make") return make(one, with), nullptr;
  if (name == "together") return together(with);
  if (name == "ignore_children") return std::signal(SIGCHLD, SIG_IGN) == SIG_ERR;
  sgd::Trainer& trainer = *one.trainer;
  if (name == "start") return trainer.start(), nullptr;
  if (name == "train") return trainer.train(with);
  if (name == "validate") return trainer.validate(with);
  if (name == "run") return trainer.run(with);
  if (name == "run_iterator") return one.reports.reset(new sgd::RunIterator(trainer.run_iterator(with))), nullptr;
  if (name == "next") return next(one);
  if (name == "get_final_results") return one.reports->get_final_results(with.is_boolean() && with.get<bool>());
  if (name == "drop") return one.reports.reset(), nullptr;
  if (name == "apply") return trainer.apply(with);
  if (name == "save") return trainer.save(with);
  if (name == "load") return trainer.load(with), nullptr;
  if (name == "places") return places(trainer);
  if (name == "shutdown") return trainer.shutdown(with.is_boolean() && with.get<bool>()), nullptr;
  if (name == "destroy") return one.reports.reset(), one.trainer.reset(), nullptr;
  throw std::logic_error("no call " + name);
}

Json failed(const char* type, const std::exception& error) {
  return {{"error", type}, {"words", error.what()}};
}

Json answer(const std::string& line) {
  try {
    const Json asked = Json::parse(line);
    return {{"ok", call(asked.at("call"), all()[asked.at("trainer")], asked.value("with", Json()))}};
  } catch (const sgd::TrainerInactive& error) {
    return failed("TrainerInactive", error);
  } catch (const sgd::JobError& error) {
    return failed("JobError", error);
  } catch (const sgd::RunError& error) {
    Json told = failed(
        dynamic_cast<const sgd::TrainingFailed*>(&error) != nullptr ? "TrainingFailed" : "TrainingStopped", error);
    told["exit_code"] = error.exit_code();
    told["summary"] = error.summary();
    return told;
  } catch (const sgd::LauncherLost& error) {
    return failed("LauncherLost", error);
  } catch (const sgd::TrainerError& error) {
    return failed("TrainerError", error);
  } catch (const std::exception& error) {
    return failed("exception", error);
  }
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answer(line).dump() << std::endl;
}
