#include "launcher/cli/narrator.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("an epoch is one line, made when its validation is known") {
  cli::EpochLines lines(5);
  CHECK(lines.add({{"phase", "train"}, {"epoch", 1.0}, {"train_loss", 0.61234}, {"samples_per_s", 12400.0}}).empty());
  CHECK(lines.add({{"phase", "validate"}, {"epoch", 1.0}, {"val_loss", 0.5}, {"val_accuracy", 0.81}}) ==
        "epoch 1/5  train_loss 0.6123  val_loss 0.5000  val_accuracy 0.8100  12.4k samples/s");
  CHECK(lines.add({{"phase", "validate"}, {"epoch", 2.0}, {"val_loss", nullptr}}) == "epoch 2/5  val_loss nan");
}

TEST_CASE("the first epoch line of a resumed run has the training that was reported before") {
  cli::EpochLines lines(5, {{"phase", "train"}, {"epoch", 3.0}, {"train_loss", 0.25}});
  CHECK(lines.add({{"phase", "validate"}, {"epoch", 3}, {"val_loss", 0.5}}) ==
        "epoch 3/5  train_loss 0.2500  val_loss 0.5000");
}

TEST_CASE("the remaining time of a resumed run counts only the steps that took its time") {
  core::RunSnapshot shot;
  shot.phase = core::RunPhase::kRunning;
  shot.epochs = 5;
  shot.step = 110;
  shot.wall_s = 1;
  CHECK(cli::status_line(shot, 200, 100).ends_with("eta 00:09"));
  CHECK(cli::status_line(shot, 200, 110).find("eta") == std::string::npos);
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
        "  after:   0 epochs, 40 steps, 1.50 s, no checkpoint yet\n"
        "  log:     runs/x/logs/gen-0001/rank-0001.log\n"
        "  next:    sgd-launch logs --rank 1 runs/x\n");
  outcome.steps = 0;
  CHECK(cli::failure_block(outcome, "runs/x", "runs/x", false).find("  after:   1.50 s\n") != std::string::npos);
}

TEST_CASE("a key that some ranks do not report is told with the ranks, not with thousands of them") {
  nlohmann::ordered_json event = {{"event", "report_mismatch"}, {"generation", 1}, {"epoch", 2},
                                  {"phase", "train"},           {"key", "score"},  {"ranks", {1, 3}}};
  CHECK(cli::narrate_event(event, "runs/a") ==
        "warning: the train report of epoch 2 has \"score\" on some ranks, and not on rank 1, 3");
  for (int rank = 4; rank < 20; ++rank) event["ranks"].push_back(rank);
  CHECK(cli::narrate_event(event, "runs/a").ends_with("not on rank 1, 3, 4, 5, 6, 7, 8, 9 and 10 others"));
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
  CHECK(cli::status_line(shot, 200, 0).find("epoch 2/5  validating  loss") != std::string::npos);
  shot.activity = "train";
  CHECK(cli::status_line(shot, 200, 0).find("epoch 2/5  loss") != std::string::npos);
}

TEST_CASE("a success without a checkpoint says that nothing was kept") {
  core::RunOutcome outcome;
  outcome.state = "succeeded";
  outcome.steps = 10;
  const nlohmann::json training = {{"training", {{"epochs", 1}}}, {"checkpoint", {{"every", "epoch"}}}};
  const nlohmann::json command = {{"command", {"true"}}, {"checkpoint", {{"every", "epoch"}}}};
  const nlohmann::json saving = {{"command", {"true"}}, {"checkpoint", {{"every", {{"steps", 100}}}}}};
  const char* lost = "; nothing of the model was kept: no checkpoint was saved";
  CHECK(cli::success_line(outcome, "runs/a", training).ends_with(lost));
  CHECK(cli::success_line(outcome, "runs/a", saving).ends_with(lost));
  CHECK(cli::success_line(outcome, "runs/a", command) == "succeeded in 0.00 s: 0 epochs, 10 steps");
  outcome.state = "interrupted";
  CHECK(cli::success_line(outcome, "runs/a", command).ends_with("; no checkpoint was saved"));
  outcome.steps = 0;
  CHECK(cli::success_line(outcome, "runs/a", training) == "interrupted in 0.00 s");
}
