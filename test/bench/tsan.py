"""The daemons' integration tests with programs that ThreadSanitizer watches: each race once, with the tests' own results.

`build/tsan` has no sgd-worker, so the tests are those whose runs are commands: of the local launcher, coordinator, agent and
keeper, and some of the attacks. A race is counted once by the places of its two accesses, however many processes had it.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_S = 900
TESTS = ("command_test", "control_test", "stop_test CommandStopTest", "accounts_test", "attacks_local_test", "attacks_clients_test",
         "attacks_cluster_test", "attacks_test", "outage_test", "exchange_test", "security_test", "disk_test",
         "takeover_test CommandTest NobodyComesTest GivenUpTest", "cluster_test CommandTest")


def races_in(folder):
    """Reports by what they say of themselves: (summary line, whole text), each once."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "race.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            for text in re.split(r"^={18}\n", file.read(), flags=re.M):
                summary = re.search(r"^SUMMARY: (.*)$", text, re.M)
                if summary:
                    found.setdefault(summary.group(1), text)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "tsan"))
    parser.add_argument("--only", default="", help="regular expression for the names of tests to run")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.build, "races")
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o1777)  # Runs of other accounts write theirs, too.
    for path in glob.glob(os.path.join(folder, "race.*")):
        os.unlink(path)
    environment = {**os.environ, "SGD_BIN_DIR": os.path.join(arguments.build, "bin"), "SGD_SANITIZED": "thread"}
    failed = []
    for test in TESTS:
        if not re.search(arguments.only, test):
            continue
        name, *classes = test.split()
        begin = time.monotonic()
        done = subprocess.run([sys.executable, os.path.join(ROOT, "test", "integration", name + ".py"), *classes], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        print(f"{test}: {'passed' if done.returncode == 0 else 'failed'}, {time.monotonic() - begin:.0f} s", flush=True)
        if done.returncode != 0:
            failed.append(test)
            print(done.stderr[-8000:], flush=True)
    races = races_in(folder)
    for text in races.values():
        print(text)
    print(f"{len(races)} races, {len(failed)} failed tests")
    return 1 if races or failed else 0


if __name__ == "__main__":
    sys.exit(main())
