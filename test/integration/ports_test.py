"""Where the ranks of a command meet: MASTER_PORT is a port of rank 0's node, free there, whatever is taken elsewhere."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, wait_for
from namespaces import HUB, Network, available

FIRST, LAST = 41_000, 41_031  # What rank 0's node gives to those who ask for any port.
LEFT = 6  # Of them, that nobody else listens at, or less where the node's own connections have them.

LISTEN = """
import socket, sys
first, last, left, address = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
kept, free = [], 0
for port in range(first, last + 1):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.argv[5]))
    try:
        one.bind((address, port))
        if free < left:
            free += 1
            one.close()
            continue
        one.listen()
        kept.append(one)
    except OSError:
        pass
print(*[one.getsockname()[1] for one in kept], flush=True)
sys.stdin.read()
"""

MEET = """
import json, os, socket, sys, time
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
rank, folder = int(os.environ["RANK"]), sys.argv[1]
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        peer, _ = server.accept()
        said = peer.recv(16).decode()
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            peer = socket.create_connection(where, 5)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    said = "hello"
    peer.sendall(said.encode())
print(json.dumps({"rank": rank, "where": where, "said": said}), flush=True)
with open(os.path.join(folder, f"{rank}.json"), "w") as out:
    json.dump({"where": where, "said": said}, out)
"""


@unittest.skipUnless(available(), "network namespaces cannot be made here")
class PortTest(unittest.TestCase):
    nodes = {"n1": 1, "n2": 1}

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-ports-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(self.folder, 0o777)  # Ranks write there, under whatever account.
        self.network = Network(list(self.nodes), prefix=f"sgdp{os.getpid() % 10_000}")
        self.addCleanup(self.network.down)
        self.network.up()
        self.inside(HUB, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={LAST + 1} 60999")  # What connects or listens there has none of these.
        for name in self.nodes:
            self.inside(name, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={FIRST} {LAST}")
        self.cluster = Cluster(self.nodes, network=self.network)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def inside(self, machine, *command):
        subprocess.run([*self.network.inside(machine), *command], check=True, timeout=LIMIT_S)

    def listen(self, machine, left, address="0.0.0.0", reuses=1):
        """Somebody listens at all ports of the range that can be had but `left`: the ports."""
        process = subprocess.Popen([*self.network.inside(machine), sys.executable, "-c", LISTEN, str(FIRST), str(LAST), str(left),
                                    address, str(reuses)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.addCleanup(end)
        return {int(port) for port in process.stdout.readline().split()}

    def script(self):
        path = os.path.join(self.folder, "meet.py")
        with open(path, "w", encoding="utf-8") as script:
            script.write(MEET)
        return ["--", sys.executable, path, self.folder]

    def met(self, rank):
        with open(os.path.join(self.folder, f"{rank}.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_a_port_of_rank_0s_node_that_is_free_there(self):
        elsewhere = self.listen(HUB, 0)
        self.assertEqual(elsewhere, set(range(FIRST, LAST + 1)), "of the coordinator's host none is left")
        taken = {name: self.listen(name, LEFT, "127.0.0.1") for name in self.nodes}  # One of its addresses is enough.
        client = self.cluster.run("-n", 2, *self.script())
        self.assertEqual(client.wait(), 0, client.said())
        first, second = self.met(0), self.met(1)
        self.assertEqual(first, second)
        self.assertEqual(first["said"], "hello")
        address, port = first["where"]
        node = next(name for name in self.nodes if self.network.addresses[name] == address)
        self.assertIn(port, range(FIRST, LAST + 1))
        self.assertNotIn(port, taken[node])

    def test_no_port_is_free(self):
        for name in self.nodes:
            self.listen(name, 0)
        client = self.cluster.run("-n", 2, *self.script())
        said = client.wait_and_say(1)
        self.assertIn("could not start rank 0: no port of this node can be reserved for MASTER_PORT: Address already in use", said)

    def test_the_port_is_kept_while_its_agent_is_away(self):
        """The next life of the agent holds what the one before had reserved, until rank 0 listens there."""
        waits = os.path.join(self.folder, "go")
        path = os.path.join(self.folder, "late.py")
        with open(path, "w", encoding="utf-8") as script:
            script.write("import os, sys, time\nopen(os.path.join(sys.argv[1], 'up' + os.environ['RANK']), 'w').write(os.environ['MASTER_PORT'])\n"
                         "while not os.path.exists(os.path.join(sys.argv[1], 'go')): time.sleep(0.02)\n" + MEET)
        client = self.cluster.run("-n", 2, "--", sys.executable, path, self.folder)
        up = [os.path.join(self.folder, f"up{rank}") for rank in (0, 1)]
        wait_for(lambda: all(os.path.exists(one) and os.path.getsize(one) > 0 for one in up), LIMIT_S, "both ranks to run")
        run = client.run_id()
        wait_for(lambda: len(self.cluster.events(run, "worker_started")) == 2, LIMIT_S, "both starts to be told")
        node = next(event["node"] for event in self.cluster.events(run, "worker_started") if event["rank"] == 0)
        self.cluster.kill(node)
        self.cluster.start_agent(node)
        wait_for(lambda: "this one takes over" in self.cluster.log_of(node), LIMIT_S, "the agent to take over")
        wait_for(lambda: self.cluster.log_of("coordinator").count(f"node {node}: connected") == 2, LIMIT_S, "its link, which needs a port, too")
        with open(up[0], encoding="utf-8") as file:
            port = int(file.read())
        self.assertIn(port, range(FIRST, LAST + 1))
        self.assertNotIn(port, self.listen(node, 0, reuses=0))
        with open(waits, "w", encoding="utf-8"):
            pass
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(self.met(0)["where"][1], port)


if __name__ == "__main__":
    unittest.main()
