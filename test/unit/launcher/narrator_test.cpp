#include "launcher/cli/narrator.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/cli/whole_fields.hpp"
#include "launcher/core/failure_of.hpp"

using namespace sgd;

TEST_CASE("training and validation of an epoch have a line each, of 80 columns at most") {
  const auto line = [](const nlohmann::ordered_json& metrics) { return cli::epoch_line(metrics, 5); };
  nlohmann::ordered_json train = {{"phase", "train"},         {"epoch", 1.0},
                                  {"train_loss", 0.61234},    {"last_train_loss", 0.5},
                                  {"samples_per_s", 12400.0}, {"lr", 0.05}};
  CHECK(line(train) == "epoch 1/5  train_loss 0.6123  lr 0.05  12.4k samples/s");
  CHECK(line({{"phase", "validate"}, {"epoch", 1}, {"val_loss", 0.5}, {"val_accuracy", 0.81}, {"val_iou", {1, 2}}}) ==
        "epoch 1/5  val_loss 0.5000  val_accuracy 0.8100");
  CHECK(line({{"phase", "validate"}, {"epoch", 6}, {"val_loss", nullptr}}) == "report 6  val_loss nan");
  CHECK(line({{"phase", "validate"}, {"epoch", 1}, {"val_loss", 1.17611e27}, {"val_mse", 0.00021}}) ==
        "epoch 1/5  val_loss 1.176e+27  val_mse 0.00021");
  CHECK(line({{"phase", "validate"}, {"epoch", 1}, {"val_loss", 0.0}, {"val_r2", -999999.0}}) ==
        "epoch 1/5  val_loss 0.0000  val_r2 -999999.0000");
  CHECK(line({{"phase", "train"}, {"epoch", 2}, {"batch", 7}, {"loss", 0.5}}).empty());
  CHECK(cli::epoch_line({{"phase", "train"}, {"epoch", 1}, {"loss", 0.5}}, 0).empty());  // Of a command.
  for (int number = 0; number < 20; ++number) train[fmt::format("train_metric_{}", number)] = 0.5;
  CHECK(line(train).size() <= 80);
  CHECK(line(train).ends_with("  lr 0.05  12.4k samples/s"));
}

TEST_CASE("a checkpoint is told in 80 columns") {
  const std::string line = "sgd-launch: " + cli::narrate_event({{"event", "checkpoint_saved"},
                                                                {"path", "checkpoints/step-000000002345-gen-0001"},
                                                                {"bytes", 1700000},
                                                                {"stall_s", 0.123},
                                                                {"write_s", 0.0204}});
  CHECK(line == "sgd-launch: saved step-000000002345-gen-0001: 1.7MB, stall 123 ms, write 20 ms");
  CHECK(line.size() <= 80);
}

TEST_CASE("the remaining time of a resumed run counts only the steps that took its time") {
  core::RunSnapshot shot;
  shot.phase = core::RunPhase::kRunning;
  shot.epochs = 5;
  shot.step = 110;
  shot.wall_s = 1;
  CHECK(cli::status_line(shot, 200, 100).find("eta") == std::string::npos);  // Nobody has measured a step yet.
  shot.samples_per_s = 10;
  CHECK(cli::status_line(shot, 200, 100).find("  eta 00:09  ") != std::string::npos);
  CHECK(cli::status_line(shot, 200, 110).find("eta") == std::string::npos);
}

TEST_CASE("the line of a command counts its workers, and says why it waits") {
  core::RunSnapshot shot;
  shot.reason = "1 slot wanted, 0 free on 0 nodes";
  CHECK(cli::status_line(shot, 0, 0) == "placing  0 workers  00:00  1 slot wanted, 0 free on 0 nodes");
  shot.phase = core::RunPhase::kRunning;
  shot.reason.clear();
  shot.world_size = 1;
  CHECK(cli::status_line(shot, 0, 0) == "running  1 worker  00:00");
}

TEST_CASE("runs of billions of steps, and of weeks") {
  core::RunSnapshot shot;
  shot.phase = core::RunPhase::kRunning;
  shot.epochs = 1;
  shot.step = 3'000'000'000;
  shot.wall_s = 1'500'000;
  CHECK(cli::status_line(shot, 4'000'000'000, 0).starts_with("step 3000000000/4000000000  epoch"));
  shot.samples_per_s = 10;
  CHECK(cli::status_line(shot, 4'000'000'000, 0).find("  eta 138:53:20  ") != std::string::npos);
  shot.epochs = 0;
  CHECK(cli::status_line(shot, 0, 0).ends_with("  416:40:00"));
  CHECK(cli::narrate_event({{"event", "run_begun_from"}, {"step", 3'000'000'000}, {"from", "a"}}) ==
        "begins with step 3000000000 of a");
  const std::string recovered = cli::narrate_event(
      {{"event", "recovered"}, {"source", "disk"}, {"step", 3'000'000'000}, {"redone", 2'999'999'999}});
  CHECK(recovered.find("resumed at step 3000000000 from disk, 2999999999 steps redone") != std::string::npos);
}

TEST_CASE("a failed run is one block, the cause first") {
  core::RunOutcome outcome;
  outcome.state = "failed";
  outcome.generation = 1;
  outcome.wall_s = 1.5;
  outcome.steps = 40;
  core::Failure cause;
  cause.kind = core::FailureKind::kSignal;
  cause.rank = 1;
  cause.subject = "rank 1";
  cause.node = "localhost";
  cause.pid = 77;
  cause.signal = 9;
  cause.tail = {"one", "two"};
  outcome.cause = cause;
  outcome.error = core::words(cause);
  CHECK(cli::failure_block(outcome, "runs/x", "runs/x", false) ==
        "sgd-launch: run failed: signal 9 (SIGKILL), rank 1\n"
        "  where:   rank 1, node localhost, pid 77, generation 1\n"
        "  last lines of rank 1:\n"
        "    | one\n"
        "    | two\n"
        "  retried: no\n"
        "  after:   1.5 s, 40 steps, no checkpoint yet\n"
        "  log:     runs/x/logs/gen-0001/rank-0001.log\n"
        "  next:    sgd-launch logs --rank 1 runs/x\n");
  outcome.cause = core::failure_of("n1", cluster::KeeperLost{0, "no space left", false, true});
  outcome.error = core::words(*outcome.cause);
  const std::string refused = cli::failure_block(outcome, "runs/x", "runs/x", false);
  CHECK(refused.starts_with("sgd-launch: run failed: could not start on node n1: no space left\n"));
  CHECK(refused.find("  where:   node n1, generation 1\n") != std::string::npos);
  outcome.steps = 0;
  CHECK(cli::failure_block(outcome, "runs/x", "runs/x", false).find("  after:   1.5 s\n") != std::string::npos);
}

TEST_CASE("a failed run says how often it was retried, and its cause once") {
  core::RunOutcome outcome;
  core::Failure cause;
  cause.rank = 0;
  cause.subject = "rank 0";
  cause.exit_code = 1;
  cause.message = "label 77 is outside 0..9";
  cause.tail = {"sgd-worker: label 77 is outside 0..9"};
  outcome.error = core::words(cause);
  const auto block = [&] {
    outcome.cause = cause;
    return cli::failure_block(outcome, "runs/x", "runs/x", false);
  };
  CHECK(block().find("last lines") == std::string::npos);
  cause.tail.insert(cause.tail.begin(), "reads labels");
  CHECK(block().find("    | reads labels\n    | sgd-worker: label 77 is outside 0..9\n") != std::string::npos);
  const auto retried = [&](int failures) {
    outcome.failures = failures;
    const std::string text = block();
    const std::size_t begin = text.find("  retried: ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(retried(1) == "  retried: no");
  CHECK(retried(2) == "  retried: yes, after 1 earlier failure; not after this one");
  CHECK(retried(4) == "  retried: yes, after 3 earlier failures; not after this one");
  cause.is_final = true;
  CHECK(retried(4) == "  retried: no, this cause is final: it would fail again the same way");
}

TEST_CASE("a message of several lines is one line in the headline, and whole below it") {
  core::RunOutcome outcome;
  core::Failure cause;
  cause.exit_code = 1;
  cause.rank = 0;
  cause.subject = "rank 0";
  cause.error = {"RuntimeError", "Error(s) in loading:\n\tMissing key(s): \"a\".", {"  File \"a.py\", line 3"}};
  cause.tail = {"RuntimeError: Error(s) in loading:", "\tMissing key(s): \"a\"."};
  outcome.error = core::words(cause);
  CHECK(outcome.error == "rank 0: RuntimeError: Error(s) in loading: (exit code 1)");
  const std::string said = "    | RuntimeError: Error(s) in loading:\n    | \tMissing key(s): \"a\".\n  retried: ";
  for (const bool has_frames : {true, false}) {
    if (!has_frames) cause.error.frames.clear();
    outcome.cause = cause;
    const std::string block = cli::failure_block(outcome, "runs/x", "runs/x", false);
    CHECK(block.find("  raised in rank 0:\n") != std::string::npos);
    CHECK(block.find(said) != std::string::npos);
    CHECK(block.find("last lines") == std::string::npos);
  }
}

TEST_CASE("what a rank says steers no terminal from a block of ours") {
  core::RunOutcome outcome;
  core::Failure cause;
  cause.rank = 0;
  cause.subject = "rank 0";
  cause.tail = {"\x1b[2J\x1b]0;title\x07 gone"};
  outcome.cause = cause;
  outcome.error = "\x1b[31mred";
  const std::string block = cli::failure_block(outcome, "runs/x", "runs/x", false);
  CHECK(block.find('\x1b') == std::string::npos);
  CHECK(block.find('\x07') == std::string::npos);
  CHECK(block.find("    | \\x1b[2J\\x1b]0;title\\x07 gone\n") != std::string::npos);
}

TEST_CASE("a GPU that a run does without is told with what it has cost") {
  nlohmann::ordered_json event = {
      {"event", "gpu_excluded"}, {"generation", 2}, {"node", "n1"}, {"device", "GPU-a"}, {"count", 2}};
  CHECK(cli::narrate_event(event) == "GPU GPU-a of n1 was the cause of 2 restarts: it is left out of this run");
  event["count"] = 1;
  CHECK(cli::narrate_event(event) == "GPU GPU-a of n1 was the cause of 1 restart: it is left out of this run");
}

TEST_CASE("a key that some ranks do not report is told with the ranks, not with thousands of them") {
  nlohmann::ordered_json event = {{"event", "report_mismatch"}, {"generation", 1}, {"epoch", 2},
                                  {"phase", "train"},           {"key", "score"},  {"ranks", {1, 3}}};
  CHECK(cli::narrate_event(event) ==
        "warning: the train report of epoch 2 has \"score\" on some ranks, and not on rank 1, 3");
  for (int rank = 4; rank < 20; ++rank) event["ranks"].push_back(rank);
  CHECK(cli::narrate_event(event).ends_with("not on rank 1, 3, 4, 5, 6, 7, 8, 9 and 10 others"));
}

TEST_CASE("numbers for people") {
  CHECK(cli::short_number(9.84) == "9.8");
  CHECK(cli::short_number(12400) == "12.4k");
  CHECK(cli::short_number(2.5e6) == "2.5M");
}

TEST_CASE("the progress line says what else is done than training") {
  core::RunSnapshot shot;
  shot.phase = core::RunPhase::kRunning;
  shot.epochs = 5;
  shot.epoch = 2;
  shot.activity = "validate";
  shot.loss = 0.5;
  CHECK(cli::status_line(shot, 200, 0).find("epoch 2/5  validating  loss") != std::string::npos);
  shot.activity = "train";
  CHECK(cli::status_line(shot, 200, 0).find("epoch 2/5  loss") != std::string::npos);
}

TEST_CASE("the progress line tells no number that nobody has measured, and failures where a narrow terminal ends") {
  core::RunSnapshot shot;
  shot.phase = core::RunPhase::kRunning;
  shot.epochs = 60;
  shot.wall_s = 20;
  shot.step = 9;
  shot.ready = shot.num_workers = 2;
  CHECK(cli::status_line(shot, 600, 0) == "step 9/600  epoch 0/60  2/2 workers");
  shot.epoch = 12;
  shot.step = 123456;
  shot.loss = 0.4123;
  shot.samples_per_s = 43'600;
  shot.failures = 3;
  const std::string line = cli::status_line(shot, 617280, 0);
  CHECK(line == "step 123456/617280  epoch 12/60  loss 0.412  failures 3  eta 01:20  43.6k samples/s  2/2 workers");
  CHECK(cli::whole_fields(line, 80) == "step 123456/617280  epoch 12/60  loss 0.412  failures 3  eta 01:20");
  CHECK(cli::whole_fields(line, 300) == line);
  CHECK(cli::whole_fields(line, 5) == line);
}

TEST_CASE("a full disk is freed before a run is resumed") {
  core::RunOutcome outcome;
  outcome.cause.emplace();
  outcome.cause->rank = 0;
  outcome.cause->subject = "rank 0";
  outcome.cause->exit_code = 1;
  outcome.cause->message = "cannot write model.safetensors: No space left on device";
  CHECK(cli::failure_block(outcome, "runs/x", "runs/x", false)
            .ends_with("  next:    free space there, then sgd-launch resume runs/x\n"));
}

TEST_CASE("the end of a run says how long it took, how far it came, and where its model is") {
  const nlohmann::json training = {{"training", {{"epochs", 2}}}, {"checkpoint", {{"every", "epoch"}}}};
  core::RunOutcome outcome;
  outcome.state = "succeeded";
  outcome.wall_s = 4.52;
  outcome.epochs = 2;
  outcome.steps = 12500;
  outcome.metrics = {{"train", {{"train_loss", 0.5}}}, {"validate", {{"val_loss", 0.02261}}}};
  outcome.checkpoint = "checkpoints/step-000000012500-gen-0001";
  CHECK(cli::end_block(outcome, "runs/a", "runs/a", training) ==
        "finished in 4.5 s (2 epochs, 12,500 steps), val_loss 0.0226\n"
        "  model: runs/a/checkpoints/step-000000012500-gen-0001/model.safetensors");
  nlohmann::json measuring = training;
  measuring["training"]["validate_only"] = true;
  CHECK(cli::end_block(outcome, "runs/a", "runs/a", measuring) == "measured in 4.5 s, val_loss 0.0226");
  outcome.state = "interrupted";
  outcome.error = "stopped by signal 2 (SIGINT)";
  outcome.metrics.erase("validate");
  CHECK(cli::end_block(outcome, "runs/a", "runs/a", training) ==
        "stopped by signal 2 (SIGINT) after 4.5 s (2 epochs, 12,500 steps), train_loss 0.5000\n"
        "  model: runs/a/checkpoints/step-000000012500-gen-0001/model.safetensors\n"
        "  next:  sgd-launch resume runs/a");
}

TEST_CASE("of a command's end no epochs are told, and a model that was not kept is") {
  const nlohmann::json training = {{"training", {{"epochs", 1}}}, {"checkpoint", {{"every", "epoch"}}}};
  const nlohmann::json command = {{"command", {"true"}}, {"checkpoint", {{"every", "epoch"}}}};
  const nlohmann::json saving = {{"command", {"true"}}, {"checkpoint", {{"every", {{"steps", 100}}}}}};
  const auto end = [](const core::RunOutcome& outcome, const nlohmann::json& job) {
    return cli::end_block(outcome, "runs/a", "runs/a", job);
  };
  core::RunOutcome outcome;
  outcome.state = "succeeded";
  CHECK(end(outcome, command) == "finished in 0.00 s");
  outcome.steps = 1;
  const char* lost = "\n  model: not kept, no checkpoint was saved";
  CHECK(end(outcome, training).ends_with(lost));
  CHECK(end(outcome, saving).ends_with(lost));
  CHECK(end(outcome, command) == "finished in 0.00 s (1 step)");
  outcome.checkpoint = "checkpoints/x";
  CHECK(end(outcome, command) == "finished in 0.00 s (1 step)\n  checkpoint: runs/a/checkpoints/x");
}

TEST_CASE("failures and waits are told to those, too, who want no progress; ranks that have moved are progress") {
  for (const char* trouble : {"failure", "backoff", "node_lost", "straggler", "last_line_refused", "output_dropped"})
    CHECK(cli::is_trouble({{"event", trouble}}));
  nlohmann::ordered_json dropped = {
      {"event", "output_dropped"},   {"generation", 1}, {"rank", 2}, {"node", "n1"}, {"lines", 27914}, {"bytes", 1},
      {"reason", "log file l: full"}};
  CHECK(cli::narrate_event(dropped) ==
        "warning: rank 2 on n1: 27,914 lines (1 byte) of output dropped: log file l: full");
  dropped["lines"] = 0;
  CHECK(cli::narrate_lost(dropped, 2, 1) == "warning: rank 2 on n1: 1 byte of output dropped: log file l: full");
  CHECK(cli::narrate_lost(dropped, 1, {}).empty());
  CHECK(cli::narrate_lost(dropped, {}, 2).empty());
  const nlohmann::ordered_json moved = {
      {"event", "moved"}, {"from", {{"a", 2}}}, {"to", {{"b", 1}, {"c", 1}}}, {"reason", "a is drained"}};
  CHECK_FALSE(cli::is_trouble(moved));
  CHECK(cli::narrate_event(moved) == "moved from a (2) to b (1), c (1): a is drained");
}
