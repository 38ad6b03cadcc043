// Help in a narrow terminal: each text stays in its column.

#include "launcher/cli/help_text.hpp"

#include <catch2/catch.hpp>

using sgd::cli::wrapped;

TEST_CASE("help: an option's text goes on in its column") {
  const std::string left = "  --timeout TIME                  ";
  CHECK(wrapped(left + "stop after this time, for example 90s or 2h; exit code 124\n", 80) ==
        left + "stop after this time, for example 90s or 2h;\n" + std::string(34, ' ') + "exit code 124\n");
  const std::string below = std::string(34, ' ') + "number of workers; auto: one per core, or one per GPU\n";
  CHECK(wrapped("  --num-workers, -n, --nproc-per-node N\n" + below, 80) ==
        "  --num-workers, -n, --nproc-per-node N\n" + std::string(34, ' ') +
            "number of workers; auto: one per core, or one\n" + std::string(34, ' ') + "per GPU\n");
}

TEST_CASE("help: a usage line goes on behind its begin, and its words below it where they have no room") {
  CHECK(wrapped("Usage: sgd-launch warm [options] [options of run] (train.py | -m module | job.json)\n", 60) ==
        "Usage: sgd-launch warm [options] [options of run] (train.py\n"
        "         | -m module | job.json)\n");
  CHECK(wrapped("  sgd-launch --address head:7070 -n 8 job.json               on a cluster, followed from here\n",
                80) == "  sgd-launch --address head:7070 -n 8 job.json\n        on a cluster, followed from here\n");
  CHECK(wrapped(std::string(61, ' ') + "on node1; --node-rank 1 on the other machine\n", 80) ==
        "        on node1; --node-rank 1 on the other machine\n");
}

TEST_CASE("help: what has room stays as it is") {
  const std::string text =
      "Examples:\n  sgd-launch status | logs --rank 1 -f | stop      the latest run\n\nExit codes: 0 succeeded\n";
  CHECK(wrapped(text, 80) == text);
  CHECK(wrapped("", 80).empty());
  for (const std::size_t width : {40U, 80U, 10'000U})
    CHECK(wrapped(text, width).find("latest run") != std::string::npos);
}
