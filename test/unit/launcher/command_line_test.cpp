#include "launcher/cli/command_line.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>

#include "common/job/job_schema.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/verb_table.hpp"

using namespace sgd;

namespace {

struct Parsed {
  cli::RunOptions options;
  std::vector<std::string> errors;
};

Parsed parse(const std::vector<std::string>& words) {
  Diagnostics diagnostics;
  Parsed parsed;
  parsed.options = cli::parse_run_options(words, diagnostics);
  for (const Diagnostic& item : diagnostics.items) parsed.errors.push_back(item.text());
  return parsed;
}

std::vector<std::string> sets_of(const Parsed& parsed) {
  std::vector<std::string> texts;
  for (const auto& set : parsed.options.overrides.sets) texts.push_back(set.path + "=" + set.value);
  return texts;
}

}  // namespace

TEST_CASE("options stand before and after a job file, in every spelling") {
  const Parsed parsed = parse({"-n", "2", "job.json", "--set", "training.lr=0.1", "--run_dir=/r", "-n4"});
  CHECK(parsed.errors.empty());
  CHECK(parsed.options.job_file == "job.json");
  CHECK(parsed.options.run_dir == "/r");
  CHECK(sets_of(parsed) == std::vector<std::string>{"num_workers=2", "training.lr=0.1", "num_workers=4"});
}

TEST_CASE("one = behind a letter is no part of its value, as in argparse") {
  const Parsed parsed = parse({"-n=2", "-n=3", "-t=1", "-r=0:3,1:1", "-ppn=4", "--", "true"});
  CHECK(parsed.errors.empty());
  CHECK(sets_of(parsed) == std::vector<std::string>{"num_workers=2", "num_workers=3", "process.tee=\"1\"",
                                                    "process.redirects=\"0:3,1:1\"", "num_workers=4"});
  CHECK(sets_of(parse({"-r=", "-t==1", "--", "true"})) ==
        std::vector<std::string>{"process.redirects=\"\"", "process.tee=\"=1\""});
  CHECK(parse({"-q=1", "a.json"}).errors.size() == 1);
}

TEST_CASE("what follows -- belongs to the command, options too") {
  const Parsed parsed = parse({"-n", "2", "--", "python3", "t.py", "--lr", "0.1", "--", "-n"});
  CHECK(parsed.errors.empty());
  CHECK(parsed.options.command == std::vector<std::string>{"python3", "t.py", "--lr", "0.1", "--", "-n"});
}

TEST_CASE("errors name the option and the fix, all of them") {
  struct Row {
    std::vector<std::string> words;
    std::vector<std::string> errors;
  };
  const Row rows[] = {
      {{"--num-wrkers", "2", "--", "true"}, {"--num-wrkers: error: unknown option; did you mean --num-workers?"}},
      {{"a.json", "--", "true"},
       {"sgd-launch: error: either a job file or a command: both \"a.json\" and what follows -- are given"}},
      {{"foo"}, {"sgd-launch: error: " + cli::unknown_word("foo")}},
      {{"job.json", "-n"}, {"-n: error: a value is missing: -n N"}},
      {{"-n", "Auto", "a.json"}, {R"(--num-workers: error: "num_workers" must be an integer or "auto", got "Auto")"}},
      {{"-np", "2", "job.json"}, {"-np: error: unknown option; did you mean -n?"}},
      {{"--"}, {"--: error: a command is missing after --"}},
      {{"--quiet=1", "a.json"}, {"--quiet: error: takes no value, got \"1\""}},
      {{"--slots", "x", "--timeout", "y", "a.json"},
       {"--slots: error: expected a number from 0, got \"x\"",
        "--timeout: error: expected a time as 90s or 2h, got \"y\""}},
      {{"a.json", "b.json"}, {"sgd-launch: error: one job file at a time: \"b.json\" is too many"}},
      {{"--set", "novalue", "a.json"}, {"--set: error: expected PATH=VALUE, got \"novalue\""}},
      {{"--num", "2", "a.json"}, {"--num: error: unknown option; see sgd-launch --help"}},
      {{"--nope", "a.json"}, {"--nope: error: unknown option; see sgd-launch --help"}},
      {{"-quiet", "a.json"}, {"-quiet: error: unknown option; did you mean --quiet?"}},
      {{"---n", "2", "a.json"}, {"---n: error: unknown option; see sgd-launch --help"}},
      {{"--_n", "2", "a.json"}, {"---n: error: unknown option; see sgd-launch --help"}},
      {{"-qh", "a.json"}, {"-qh: error: unknown option; see sgd-launch --help"}},
      {{"--=x", "a.json"}, {"--: error: unknown option; see sgd-launch --help"}},
      {{"--Quiet", "a.json"}, {"--Quiet: error: unknown option; did you mean --quiet?"}},
      {{"-ppn"}, {"-ppn: error: a value is missing: -ppn N"}},
      {{"--num_workers", "--", "true"}, {"--num-workers: error: a value is missing: --num-workers N"}},
      {{"--run_dir=", "a.json"}, {"--run-dir: error: expected a folder"}},
      {{"--slots", "--quiet", "a.json"}, {"--slots: error: expected a number from 0, got \"--quiet\""}},
      {{"--epochs", "5", "a.json", "--slots", "x"},
       {"--epochs: error: is a key of the job file, not an option: use --set training.epochs=5",
        "--slots: error: expected a number from 0, got \"x\""}},
      {{"--epochs", "a.json"},
       {"--epochs: error: is a key of the job file, not an option: use --set training.epochs=VALUE"}},
      {{"a.json", "--lr=0.1"},
       {"--lr: error: is a key of the job file, not an option: use --set training.optimizer.lr=0.1"}},
      {{"--epoch", "5"}, {"--epoch: error: unknown option; did you mean --set training.epochs=VALUE?"}},
      {{"--slots=a=b", "a.json"}, {"--slots: error: expected a number from 0, got \"a=b\""}},
      {{"a.json", "--slotss", "2", "--timeout", "y"},
       {"--slotss: error: unknown option; did you mean --slots?",
        "--timeout: error: expected a time as 90s or 2h, got \"y\""}},
      {{}, {"sgd-launch: error: nothing to run: give a job file, or a command after --; see sgd-launch --help"}},
  };
  for (const Row& row : rows) CHECK(parse(row.words).errors == row.errors);
}

TEST_CASE("resume takes what can change, and no variable of the environment") {
  ::setenv("PET_NPROC_PER_NODE", "3", 1);
  cli::RunOptions options;
  Diagnostics diagnostics;
  const auto parsed = cli::parse_arguments(cli::resume_option_table(options),
                                           {"my-run", "-n", "4", "--set", "a.b=1", "--quiet", "--run-dir", "x"},
                                           cli::AfterPositional::kContinue, diagnostics);
  ::unsetenv("PET_NPROC_PER_NODE");
  CHECK(parsed.positional == std::vector<std::string>{"my-run", "x"});
  REQUIRE(diagnostics.items.size() == 1);
  CHECK(diagnostics.items[0].text().starts_with("--run-dir: error: unknown option"));
  CHECK(options.quiet);
  REQUIRE(options.overrides.sets.size() == 2);
  CHECK(options.overrides.sets[0].value == "4");
}

TEST_CASE("options of a verb beside those of run end where a command begins") {
  struct Row {
    std::vector<std::string> words;
    bool is_json;
    std::size_t words_of_command;
  };
  for (const Row& row : {Row{{"--json", "-n", "1", "--", "prog"}, true, 1},
                         Row{{"-n", "1", "--", "prog", "--json"}, false, 2}, Row{{"job.json", "--json"}, true, 0}}) {
    bool is_json = false;
    Diagnostics diagnostics;
    const auto options = cli::parse_run_options(row.words, diagnostics, {cli::flag({"--json"}, "", is_json)});
    CHECK(diagnostics.items.empty());
    CHECK(is_json == row.is_json);
    CHECK(options.command.size() == row.words_of_command);
  }
}

TEST_CASE("an address is refused where it was said") {
  for (const char* good : {"h", "h:1", "h:0", "h:65535", "[::1]:1", "::1"}) CHECK(cli::parse_address(good).has_value());
  for (const char* bad : {"h:", "h:-5", "h:65536", "h:x", "h:1x", ":1", "[::1", "a b:1"})
    CHECK_FALSE(cli::parse_address(bad).has_value());
  Diagnostics diagnostics;
  CHECK_FALSE(cli::cluster_address("h:-5", diagnostics).has_value());
  ::setenv("SGD_ADDRESS", "h:-6", 1);
  CHECK_FALSE(cli::cluster_address("h:-6", diagnostics).has_value());
  ::unsetenv("SGD_ADDRESS");
  REQUIRE(diagnostics.items.size() == 2);
  CHECK(diagnostics.items[0].text() == "--address: error: expected HOST:PORT, unix:PATH, auto or local, got \"h:-5\"");
  CHECK(diagnostics.items[1].source == "SGD_ADDRESS");
}

TEST_CASE("a word for a number of workers is told of once, also beside other errors") {
  const Parsed parsed = parse({"-n", "xpu", "--nope", "a.json"});
  REQUIRE(parsed.errors.size() == 2);
  CHECK(parsed.errors[1] == "--num-workers: error: there is no way to count XPUs here: give their number");
  CHECK(sets_of(parsed) == std::vector<std::string>{"num_workers=1"});
}

TEST_CASE("what is typed in place of an expected option is a key of the job") {
  cli::RunOptions unused;
  std::size_t expected = 0;
  for (const cli::Option& option : cli::run_option_table(unused)) {
    if (option.instead.empty()) continue;
    INFO(option.instead);
    ++expected;
    const nlohmann::json job = {
        {"training", {{"model", {{"type", "mlp"}}}, {"optimizer", {{"type", "sgd"}}}, {"dataset", {{"type", "idx"}}}}}};
    CHECK_FALSE(job::job_schema().nodes_at(option.instead.substr(std::string("--set ").size()), job).empty());
  }
  CHECK(expected > 5);
}

TEST_CASE("help shows every option that has a text") {
  cli::RunOptions unused;
  const std::string help = cli::run_help();
  for (const cli::Option& option : cli::run_option_table(unused))
    if (!option.help.empty()) CHECK(help.find(option.names.front()) != std::string::npos);
  CHECK(help.starts_with("Examples:"));
}
