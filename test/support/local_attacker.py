"""What an account of the machine tries against files, sockets and processes that are not its own. From standard input: JSON with
`files`, `folders`, `sockets`, `processes`; prints JSON with `count` and `done`, the attacks that were carried out. Standard library only."""

import json
import os
import signal
import socket
import sys

NAME = "planted"


def reads(path):
    with open(path, "rb") as file:
        file.read(1)


def appends(path):
    with open(path, "ab") as file:
        file.write(b"x")


def truncates(path):
    os.truncate(path, 0)


def removes(path):
    os.unlink(path)


def renames(path):
    os.rename(path, path + ".gone")


def opens_to_all(path):
    os.chmod(path, 0o777)


def takes(path):
    os.chown(path, os.getuid(), -1)


def lists(folder):
    os.listdir(folder)


def plants_a_file(folder):
    with open(os.path.join(folder, NAME), "wb"):
        pass


def plants_a_link(folder):
    os.symlink("/etc", os.path.join(folder, NAME + "-link"))


def plants_a_folder(folder):
    os.mkdir(os.path.join(folder, NAME + "-folder"))


def moves(folder):
    os.rename(folder, folder + ".gone")


def connects(path):
    """An answer, or a connection that stays, is one; to be shut out at once is none."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(20)
        one.connect(path)
        try:
            one.sendall(b'{"type":"status","id":1}\n')
            if one.recv(1):
                return
        except TimeoutError:
            return
        raise ConnectionError("shut out")


def reads_of_process(what):
    def attack(pid):
        with open(f"/proc/{pid}/{what}", "rb", buffering=0) as file:
            if what == "mem":
                file.seek(4096)
            file.read(1)
    attack.__name__ = f"reads {what}"
    return attack


def descriptors(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        os.readlink(f"/proc/{pid}/fd/{name}")


def follows_its_folder(pid):
    os.listdir(f"/proc/{pid}/cwd/")


def writes_memory(pid):
    with open(f"/proc/{pid}/mem", "wb", buffering=0) as file:
        file.seek(4096)


def shields_from_memory_loss(pid):
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def signals(number):
    def attack(pid):
        os.kill(pid, number)
    attack.__name__ = f"signal {number}"
    return attack


def reprioritises(pid):
    os.setpriority(os.PRIO_PROCESS, pid, 19)


def binds_to_a_core(pid):
    os.sched_setaffinity(pid, {0})


ATTACKS = {
    "files": [reads, appends, truncates, opens_to_all, takes, renames, removes],
    "folders": [lists, plants_a_file, plants_a_link, plants_a_folder, opens_to_all, takes, moves],
    "sockets": [connects, opens_to_all, removes],
    "processes": [reads_of_process("environ"), reads_of_process("mem"), reads_of_process("maps"), reads_of_process("auxv"),
                  reads_of_process("stack"), descriptors, follows_its_folder, writes_memory, shields_from_memory_loss,
                  signals(0), signals(signal.SIGSTOP), signals(signal.SIGKILL), reprioritises, binds_to_a_core],
}


def main():
    targets, count, done = json.load(sys.stdin), 0, []
    for kind, attacks in ATTACKS.items():
        for target in targets[kind]:
            for attack in attacks:
                count += 1
                try:
                    attack(target)
                    done.append([attack.__name__, target])
                except (OSError, ConnectionError):
                    pass
    print(json.dumps({"count": count, "done": done}))


if __name__ == "__main__":
    main()
