"""One rank of scripts/bench ddp-backend: ddp_backend_rank.py SIDE messages | train ARGUMENT...

SIDE: gloo; sgd, which puts our backend in Gloo's place and changes nothing else; or hosts, the same where each two ranks count
as a host. `train` is ddp_train.py with its
arguments. `messages SIZES` times all_reduce of so many bytes of float32; a line of JSON from rank 0: microseconds by
bytes, each the median of its rounds.
"""

import json
import os
import runpy
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 7
ROUND_S = 0.05


def messages(sizes):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    figures = {}
    for size in map(int, sizes.split(",")):
        tensor = torch.zeros(size // 4)
        times = []
        repeats = 3
        for number in range(ROUNDS + 1):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(repeats):
                dist.all_reduce(tensor)
            seconds = torch.tensor((time.perf_counter() - begin) / repeats)
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
            if number == 0:  # Warms up, and says how many calls a round may have.
                repeats = max(1, min(1000, int(ROUND_S / seconds.item())))
            else:
                times.append(seconds.item() * 1e6)
        figures[size] = statistics.median(times)
    if dist.get_rank() == 0:
        os.write(1, (json.dumps({"us": figures}) + "\n").encode())
    dist.destroy_process_group()


def main():
    side, what = sys.argv[1:3]
    if side != "gloo":
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "worker", "python"))
        import sgd_launch_ddp

        sgd_launch_ddp.install(replace="gloo")
    if side == "hosts":
        import sgd_launch_collective

        record = sgd_launch_collective._host_record()
        sgd_launch_collective._host_record = lambda: {**record, "host": ["host", int(os.environ["RANK"]) // 2]}
    if what == "messages":
        messages(sys.argv[3])
    else:
        sys.argv = [os.path.join(HERE, "ddp_train.py"), *sys.argv[3:]]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
