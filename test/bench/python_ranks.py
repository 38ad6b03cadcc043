"""A Python script with DistributedDataParallel, 2 ranks: command to the first step of both, and SIGKILL of a rank to the first step of
both after it; under sgd-launch (fork server, state in memory; also with an interpreter that is kept warm) and under torchrun (a
checkpoint file every 50 steps).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import HERE, LAUNCHER, PEERS_PYTHON, TORCHRUN, Folder, arguments, figure, ratio, run, table, torch_version

RANKS = 2
LIMIT_S = 180
KILLS = 2  # Of each launch, after its start.
SETTLE_S = 2  # Of training between a first step and a kill: both sides have something to lose.


def first_steps(path):
    """What ranks have said, in the order of its coming."""
    said = []
    with open(path, "rb") as file:
        for line in file:
            begin = line.find(b'{"pid"')
            if begin >= 0 and line.endswith(b"}\n"):
                said.append(json.loads(line[begin:]))
    return said


def wait_for_all(process, path, count, ranks=RANKS):
    """The time of the last of `count` first steps, of so many ranks; nothing where the launcher ends or the limit passes."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        said = first_steps(path)
        if len(said) >= count:
            return max(line["first_step"] for line in said[count - ranks:count])
        time.sleep(0.02)
    return None


def environment(folder):
    """Of a launch: no other one's warm interpreter is in its reach."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": PEERS_PYTHON, "XDG_RUNTIME_DIR": folder}


def launch(command, folder, figures, is_warm=False):
    output = os.path.join(folder, "console")
    words = [*command, os.path.join(HERE, "python_rank.py"), os.path.join(folder, "state.pt")]
    if is_warm:
        subprocess.run([words[0], "warm", *words[1:]], cwd=folder, env=environment(folder), check=True, stdout=subprocess.DEVNULL)
    with open(output, "wb") as console:
        begin = time.time()
        process = subprocess.Popen(words, cwd=folder, stdout=console, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment(folder))
    try:
        done = wait_for_all(process, output, RANKS)
        if done is None:
            sys.exit(f"{command[0]} did not come to a first step:\n" + open(output, errors="replace").read()[-3000:])
        figures["start"].append(done - begin)
        for number in range(KILLS):
            time.sleep(SETTLE_S)
            said = first_steps(output)
            killed_at = time.time()
            os.kill(next(line["pid"] for line in reversed(said) if line["rank"] == 1), signal.SIGKILL)
            done = wait_for_all(process, output, RANKS * (number + 2))
            figures["kills"].append(done is not None)
            if done is None:
                return
            figures["recovery"].append(done - killed_at)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        if is_warm:
            subprocess.run([words[0], "warm", "--stop"], env=environment(folder), check=True, stdout=subprocess.DEVNULL)


def import_seconds():
    """One interpreter that imports what the script does."""
    return run([PEERS_PYTHON, "-c", "import torch, torch.distributed, torch.nn.parallel"], env={"OMP_NUM_THREADS": "1"})[0]


def alone_seconds():
    """One interpreter, one rank and no launcher: from the command to the first step. DistributedDataParallel's constructor imports 900 modules more."""
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        words = [PEERS_PYTHON, os.path.join(HERE, "python_rank.py"), os.path.join(folder, "state.pt")]
        env = {**environment(folder), "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        output = os.path.join(folder, "console")
        with open(output, "wb") as console:
            begin = time.time()
            process = subprocess.Popen(words, cwd=folder, stdout=console, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
        try:
            done = wait_for_all(process, output, 1, ranks=1)
        finally:
            process.kill()
            process.wait(60)
        if done is None:
            sys.exit("one rank alone did not come to a first step:\n" + open(output, errors="replace").read()[-3000:])
        return done - begin


def main():
    options = arguments(__doc__.splitlines()[0])
    ours = [LAUNCHER, "--no-fold", "--max-restarts", "100", "--nproc-per-node", str(RANKS)]
    theirs = [*TORCHRUN, "--standalone", "--max-restarts", "100", "--monitor-interval", "0.1", "--nproc-per-node", str(RANKS)]
    sides = [(command, is_warm, {key: [] for key in ("start", "recovery", "kills")}) for command, is_warm in
             ((ours, False), (ours, True), (theirs, False))]
    imports = [import_seconds() for _ in range(2)][1:]
    alone = []
    for number in range(options.n):
        for command, is_warm, figures in sides:
            with Folder() as folder:
                launch(command, folder, figures, is_warm)
        imports.append(import_seconds())
        alone.append(alone_seconds())
        print(f"{number + 1}/{options.n} done", file=sys.stderr)
    mine, warm, peer = (figures for _, _, figures in sides)
    rows = [["command to first step of both ranks, s", figure(mine["start"], 2), figure(peer["start"], 2), ratio(peer["start"], mine["start"])],
            ["the same, the interpreter kept warm, s", figure(warm["start"], 2), "", ratio(peer["start"], warm["start"])],
            ["SIGKILL of rank 1 to first step of both, s", figure(mine["recovery"], 3), figure(peer["recovery"], 3) if peer["recovery"] else "none",
             ratio(peer["recovery"], mine["recovery"]) if peer["recovery"] else ""],
            ["kills survived", f"{sum(mine['kills'] + warm['kills'])} of {len(mine['kills'] + warm['kills'])}", f"{sum(peer['kills'])} of {len(peer['kills'])}", ""],
            ["one interpreter that imports the same, s", figure(imports, 2), "", ""],
            ["one rank without a launcher, to its first step, s", figure(alone, 2), "", ""]]
    table("Python ranks, DDP over Gloo", ["what", "sgd-launch", "torchrun", "times"], rows,
          f"n = {options.n} launches of {KILLS} kills, alternating; torch {torch_version()}.")


if __name__ == "__main__":
    main()
