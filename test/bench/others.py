"""Scripts that nobody here has written, unchanged, by torchrun and by sgd-launch in turn: exit codes, seconds, and what each has said.

others.py FOLDER [--n 3] [--only WORD,...] [--python PYTHON]: FOLDER has checkouts, `examples` (pytorch/examples), `minGPT`, `lightning`, `elastic`
(its examples/multi_container and PyTorch's test/distributed/launcher/bin); of accelerate what is installed is taken. A case whose files are missing is left out and said.
"""

import argparse
import glob
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import LAUNCHER, PEERS_PYTHON

LIMIT_S = 300
# Name, file below the folder (or below site-packages), arguments, ranks, environment.
CASES = [
    ("examples ddp", "examples/distributed/ddp/example.py", [], 2, {}),
    ("examples FSDP2", "examples/distributed/FSDP2/example.py", [], 2, {}),
    ("examples tensor_parallel", "examples/distributed/tensor_parallelism/tensor_parallel_example.py", [], 2, {}),
    ("examples multigpu_torchrun", "examples/distributed/ddp-tutorial-series/multigpu_torchrun.py", ["2", "1"], 2, {}),
    ("examples minGPT-ddp", "examples/distributed/minGPT-ddp/mingpt/main.py", [], 2, {}),
    ("examples rpc rnn", "examples/distributed/rpc/rnn/main.py", [], 1, {}),
    ("minGPT adder", "minGPT/projects/adder/adder.py", ["--trainer.max_iters=60", "--model.model_type=gpt-nano"], 1, {"PYTHONPATH": "minGPT"}),
    ("minGPT adder", "minGPT/projects/adder/adder.py", ["--trainer.max_iters=60", "--model.model_type=gpt-nano"], 2, {"PYTHONPATH": "minGPT"}),
    ("accelerate test_script", "accelerate/test_utils/scripts/test_script.py", [], 2, {"ACCELERATE_USE_CPU": "true"}),
    ("accelerate test_sync", "accelerate/test_utils/scripts/test_sync.py", [], 2, {"ACCELERATE_USE_CPU": "true"}),
    ("accelerate test_notebook", "accelerate/test_utils/scripts/test_notebook.py", [], 1, {"ACCELERATE_USE_CPU": "true"}),
    ("torchelastic echo", "elastic/echo.py", [], 2, {}),
    ("torch launcher test_script_init_method", "elastic/test_script_init_method.py", ["--init-method=env://"], 2, {}),
    ("lightning bug_report_model", "lightning/examples/pytorch/bug_report/bug_report_model.py", [], 1, {}),
]


def find(folder, path, python):
    found = os.path.join(folder, path)
    packages = os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "python3*", "site-packages")
    below = [os.path.join(base, path) for base in glob.glob(packages) + sys.path]
    return next((one for one in [found, *below] if os.path.exists(one)), None)


def run(command, folder, environment):
    """(exit code, seconds, what it has said)."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as scratch:
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env={**environment, "TMPDIR": scratch}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # It ends its ranks.
            process.wait(60)
            code = "time-out"
        seconds = time.monotonic() - begin
        output.seek(0)
        return code, seconds, output.read().decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", default=PEERS_PYTHON)
    parser.add_argument("--backend", action="store_true", help="also by sgd-launch --backend sgd")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    for name, path, words, ranks, more in CASES:
        script = find(folder, path, options.python)
        if not any(word in name for word in options.only.split(",")) or script is None:
            if script is None:
                print(f"{name}: {path} is missing", flush=True)
            continue
        environment = {**os.environ, "PYTHON_EXEC": options.python, "OMP_NUM_THREADS": "1", **more}
        if "PYTHONPATH" in more:
            environment["PYTHONPATH"] = os.path.join(folder, more["PYTHONPATH"])
        sides = {"torchrun": [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), script, *words],
                 "sgd-launch": [LAUNCHER, "--nproc-per-node", str(ranks), script, *words]}
        if options.backend:
            sides["--backend sgd"] = [LAUNCHER, "--backend", "sgd", "--nproc-per-node", str(ranks), script, *words]
        results = {side: [] for side in sides}
        for _ in range(options.n):
            for side, command in sides.items():
                with tempfile.TemporaryDirectory() as place:
                    results[side].append(run(command, place, environment))
        row = [f"{side}: {'/'.join(sorted({str(code) for code, _, _ in runs}))}, {statistics.median(s for _, s, _ in runs):.1f} s "
               f"[{min(s for _, s, _ in runs):.1f}-{max(s for _, s, _ in runs):.1f}]" for side, runs in results.items()]
        print(f"{name}, {ranks}: " + " | ".join(row), flush=True)
        if len({str(code) for runs in results.values() for code, _, _ in runs}) > 1 or os.environ.get("SAID"):
            for side, runs in results.items():
                print(f"--- {side}\n" + "\n".join(runs[-1][2].splitlines()[-12:]), flush=True)


if __name__ == "__main__":
    main()
