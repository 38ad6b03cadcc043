"""Attacks on a coordinator with TLS, each by its name, while a job runs: every one is refused, shows at the attacker, is counted
by its kind, and the job notices none. The rows of failures.md that are meant stand beside each group.

SGD_ATTACK_CONNECTIONS (2000): how many connections at once say nothing; with 10000 the whole of row 32.
"""

import concurrent.futures
import contextlib
import os
import resource
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import attacker
from attacker import CHUNK, HELLO, Wire, attempt, checksum, frame
from attacked import CONNECTIONS, FACTS, FRAMES, Attacked
from harness import AGENT, LIMIT_S, read_file, wait_for
from installed_units import give

IDLE = int(os.environ.get("SGD_ATTACK_CONNECTIONS", "2000"))
IDLE_PROCESSES = 4
MEMBER_SAYS = {"type": "node_state", "node": "n2", "incarnation": 7, "slots": 1, "is_new_link": True}
STEP = "checkpoints/step-000000000001-gen-0001"
HOLD = """
import socket, sys
held = []
for _ in range(int(sys.argv[3])):
    one = socket.socket()
    one.settimeout(30)
    one.bind((sys.argv[1], 0))
    one.connect(("127.0.0.1", int(sys.argv[2])))
    held.append(one)
print(len(held), flush=True)
sys.stdin.read()
"""  # Source address, port, how many; until its input ends.


def open_files(pid):
    """What the descriptors of a process are, but those that it closes meanwhile."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def fact(sequence, run, generation=1, incarnation=7, rank=0, body=None):
    return {"type": "fact", "incarnation": incarnation, "sequence": sequence, "run": run, "generation": generation,
            "body": body or {"type": "worker_exited", "rank": rank, "exit_code": 1}}


class AttacksTest(Attacked):
    def test_what_is_no_tls(self):
        """Row 35: no fallback, whatever is spoken."""
        alert = ("closed", "reset")
        for name, said in (("our own hello in plain text", frame(HELLO)), ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                           ("the banner of SSH", b"SSH-2.0-OpenSSH_9.2\r\n"), ("zeros", bytes(4096)),
                           ("random bytes", b"\xc3" + os.urandom(4096))):
            self.counted(name, CONNECTIONS, "plain_text", lambda said=said: attempt(self.address, said, tls=False), alert)
        for name, said in (("a record of TLS with noise in it", b"\x16\x03\x01\x02\x00" + os.urandom(512)),
                           ("an alert for a first record", b"\x15\x03\x03\x00\x02\x02\x28")):
            self.counted(name, CONNECTIONS, "handshake", lambda said=said: attempt(self.address, said, tls=False), alert)
        self.counted("TLS 1.2", CONNECTIONS, "handshake", lambda: attempt(self.address, old_tls=True), ("PROTOCOL_VERSION",))

        def leave():
            Wire(self.address, tls=False).raw.close()
            return "closed"
        self.counted("gone without a byte", CONNECTIONS, "gone", leave)

    def test_certificates(self):
        """Row 35: who signed it, for whom, until when, and whether it still counts."""
        make, agent = self.forge.certificate, ["sgd://agent/n2"]
        other = self.forge.authority("other")
        leaf = self.path("n2/identity/leaf.pem")
        with open(leaf, "wb") as file:
            file.write(read_file(self.n2))
        long = make("long", agent, self.ours)
        with open(long, "a", encoding="ascii") as file:
            file.write(self.forge.read("state/ca/ca.pem") * 60)
        for name, identity, label, alert in (
                ("signed by itself", make("self", agent), "untrusted", "UNKNOWN_CA"),
                ("of another authority", make("stranger", agent, other), "untrusted", "UNKNOWN_CA"),
                ("of another authority, for a coordinator", make("head", ["sgd://coordinator/x"], other), "untrusted", "UNKNOWN_CA"),
                ("signed by an agent", make("child", agent, (leaf, leaf)), "untrusted", ""),
                ("with a chain of more than 16 KiB", long, "handshake", "ILLEGAL_PARAMETER"),
                ("expired", make("old", agent, self.ours, days=-1), "expired", "EXPIRED"),
                ("revoked", self.gone, "revoked", "REVOKED"),
                ("without a role", make("nobody", [], self.ours), "untrusted", ""),
                ("of two roles", make("both", agent + ["sgd://client/x"], self.ours), "untrusted", ""),
                ("of an unknown role", make("king", ["sgd://king/x"], self.ours), "untrusted", ""),
                ("of a name that is a path", make("path", ["sgd://agent/../n1"], self.ours), "untrusted", ""),
                ("for servers only", make("server", agent, self.ours, usage="serverAuth"), "wrong_role", "")):
            self.counted(name, CONNECTIONS, label, lambda identity=identity: attempt(self.address, HELLO, identity=identity), (alert,))

    def test_roles_and_names(self):
        """A certificate is good for one role and one name. Row 61: a second agent of a name is turned away."""
        client, files = {"type": "client", "version": "x"}, {"type": "files", "node": "n1", "incarnation": 1}
        head = self.loot(self.path("state/identity/identity.pem"), "head")
        for name, identity, said, family, label in (
                ("a stranger as client", None, client, CONNECTIONS, "no_certificate"),
                ("a stranger as agent", None, MEMBER_SAYS, CONNECTIONS, "no_certificate"),
                ("a stranger for files", None, files, CONNECTIONS, "no_certificate"),
                ("a stranger who renews", None, {"type": "renew", "csr": ""}, CONNECTIONS, "no_certificate"),
                ("an agent as client", self.n2, client, CONNECTIONS, "wrong_role"),
                ("a client as agent", self.eva, MEMBER_SAYS, CONNECTIONS, "wrong_role"),
                ("a client for files", self.eva, files, CONNECTIONS, "wrong_role"),
                ("the coordinator as client", head, client, CONNECTIONS, "wrong_role"),
                ("an agent as another node", self.n2, MEMBER_SAYS | {"node": "n1"}, CONNECTIONS, "wrong_name"),
                ("an agent as another node, for files", self.n2, files, FRAMES, "file_node"),
                ("a second agent of one name", self.n1, MEMBER_SAYS | {"node": "n1"}, CONNECTIONS, "node_taken"),
                ("a role that does not exist", self.n2, {"type": "coordinator"}, CONNECTIONS, "bad_message")):
            self.counted(name, family, label, lambda identity=identity, said=said: attempt(
                self.address, HELLO, said, identity=identity), None if label == "wrong_role" and identity == head else ("closed", "reset"))
        self.counted("an agent that changes its name", FRAMES, "wrong_name", lambda: attempt(
            self.address, HELLO, MEMBER_SAYS, MEMBER_SAYS | {"node": "n1"}, identity=self.n2))

    def test_frames_of_strangers(self):
        """Rows 30, 31, 33: what a first frame may be, and how long."""
        old, new = ({"type": "hello", "protocol_min": at, "protocol_max": at} for at in (0, 9))
        for name, label, said in (
                ("4 GiB", "oversize", (frame(b"", length=0xFFFFFFFF),)), ("a hello of 4 KiB and a byte", "oversize", (frame(bytes(4097)),)),
                ("a first message of 16 KiB and a byte", "oversize", (HELLO, frame(bytes(16385)))),
                ("4 GiB after the hello", "oversize", (HELLO, frame(b"", length=0xFFFFFFFF))),
                ("a kind that does not exist", "bad_frame", (frame(b"x", 3),)), ("the kind 0", "bad_frame", (HELLO, frame(b"x", 0))),
                ("an empty hello", "protocol", (frame(b""),)), ("a chunk for a hello", "protocol", (frame(b"x", CHUNK),)),
                ("no hello", "protocol", (MEMBER_SAYS,)), ("an older protocol", "protocol", (old,)), ("a newer protocol", "protocol", (new,)),
                ("a range that is none", "protocol", (HELLO | {"protocol_max": 0},)),
                ("versions in words", "protocol", (HELLO | {"protocol_min": "1"},)),
                ("a version beyond all numbers", "protocol", (HELLO | {"protocol_max": 2**70},)),
                ("a second hello", "bad_message", (HELLO, HELLO)), ("an empty first message", "bad_message", (HELLO, frame(b""))),
                ("a chunk for a first message", "bad_message", (HELLO, frame(b'{"type":"join"}', CHUNK))),
                ("an array", "bad_message", (HELLO, [1])), ("no type", "bad_message", (HELLO, {})),
                ("a type that is a number", "bad_message", (HELLO, {"type": 5})),
                ("a type with a NUL", "bad_message", (HELLO, {"type": "join\0"})),
                ("bytes that are no UTF-8", "bad_message", (HELLO, frame(b'{"type":"\xff\xfe"}'))),
                ("half a JSON", "bad_message", (HELLO, frame(b'{"type":"join"')))):
            self.counted(name, CONNECTIONS, label, lambda said=said: attempt(self.address, *said, source=self.another_address()))

        def cut_off(parts):
            with Wire(self.address) as wire:
                wire.send(*parts)
            return "closed"
        for name, parts in (("cut off in a header", (b"\0\0",)), ("cut off in a frame", (HELLO, frame(b"{", length=100)))):
            self.counted(name, CONNECTIONS, "gone", lambda parts=parts: cut_off(parts))

    def test_messages_of_members(self):
        """Row 30: a certificate makes no message right, and a bad one ends its connection."""
        client, deep = {"type": "client", "version": "x"}, b'{"type":"node_state","a":' + b"[" * 100000 + b"]" * 100000 + b"}"
        for name, identity, family, label, said in (
                ("JSON of 100,000 levels", self.n2, CONNECTIONS, "bad_message", (frame(deep),)),
                ("a state with slots in words", self.n2, CONNECTIONS, "bad_message", (MEMBER_SAYS | {"slots": "two"},)),
                ("a state with more slots than can be added up", self.n2, CONNECTIONS, "bad_message", (MEMBER_SAYS | {"slots": 2**31 - 1},)),
                ("a state with less than no slots", self.n2, CONNECTIONS, "bad_message", (MEMBER_SAYS | {"slots": -1},)),
                ("a state with a page for a label", self.n2, CONNECTIONS, "bad_message", (MEMBER_SAYS | {"labels": {"gpu": "x" * 4096}},)),
                ("a state with an address of 4 KiB", self.n2, CONNECTIONS, "bad_message", (MEMBER_SAYS | {"address": "x" * 4096},)),
                ("a later state with a thousand labels", self.n2, FRAMES, "bad_message", (MEMBER_SAYS, MEMBER_SAYS | {
                    "labels": {str(number): "" for number in range(1000)}})),
                ("a later state with 5,000 runs", self.n2, FRAMES, "bad_message", (MEMBER_SAYS, MEMBER_SAYS | {"runs": [
                    {"run": f"run-{number}", "generation": 1, "workers": 0} for number in range(5000)]})),
                ("a later state with 2 billion ranks", self.n2, FRAMES, "bad_message", (MEMBER_SAYS, MEMBER_SAYS | {"runs": [
                    {"run": "run", "generation": 1, "workers": 2**31 - 1}]})),
                ("a later state with a run above the folder", self.n2, FRAMES, "bad_message", (MEMBER_SAYS, MEMBER_SAYS | {"runs": [
                    {"run": "../run", "generation": 1, "workers": 1}]})),
                ("a state without a node", self.n2, CONNECTIONS, "bad_message", ({"type": "node_state", "incarnation": 1},)),
                ("two keys of one name", self.n2, CONNECTIONS, "wrong_role", (frame(b'{"type":"node_state","type":"client"}'),)),
                ("an oversize JSON", self.n2, CONNECTIONS, "oversize", (frame(b"", length=(1 << 20) + 1),)),
                ("an oversize chunk", self.n2, CONNECTIONS, "oversize", (frame(b"", CHUNK, length=(4 << 20) + 1),)),
                ("an agent's unknown frame", self.n2, FRAMES, "bad_frame", (MEMBER_SAYS, frame(b"x", 9))),
                ("an agent's unknown message", self.n2, FRAMES, "bad_message", (MEMBER_SAYS, {"type": "desired_run"})),
                ("an agent's 4 GiB", self.n2, FRAMES, "oversize", (MEMBER_SAYS, frame(b"", length=0xFFFFFFFF))),
                ("a client's chunk", self.eva, FRAMES, "bad_message", (client, frame(b"x", CHUNK))),
                ("a client's half JSON", self.eva, FRAMES, "bad_message", (client, frame(b'{"id":1'))),
                ("a client's 4 GiB", self.eva, FRAMES, "oversize", (client, frame(b"", length=0xFFFFFFFF)))):
            self.counted(name, family, label, lambda identity=identity, said=said: attempt(self.address, HELLO, *said, identity=identity))

    def test_a_client_without_the_right(self):
        """It is answered, and nothing is done."""
        for name, request in (("stops the run of another", {"request": "stop", "run": self.run_id}),
                              ("orders a node away", {"request": "order_node", "node": "n1", "order": "drain"}),
                              ("asks for what does not exist", {"request": "shell", "command": "id"}),
                              ("asks with a run that is a path", {"request": "status", "run": "../../etc"})):
            with self.subTest(attack=name), Wire(self.address, self.eva) as wire:
                wire.send(HELLO, {"type": "client", "version": "x"}, {"type": "request", "id": 1} | request)
                self.assertFalse(wire.read_until("answer")["ok"])
                type(self).attacks += 1
        self.assertIsNone(self.job.poll())

    def test_tokens(self):
        """Row 34: a token is good once, for a while, for one role and name; each from an address of its own, then many from one."""
        used, bound, short = self.token("--role", "client", "--name", "used"), self.token("--name", "n7"), self.token("--ttl", "1s")
        fresh, revoked = self.token(), self.token()
        self.verb("join", self.address, "--token-file", "-", "--identity", self.path("used"), "--name", "used", text=used)
        self.verb("token", "revoke", attacker.token_bytes(revoked)[1:9].hex(), "--state-dir", self.state)
        request, body, made_s = self.forge.request("joiner"), attacker.token_bytes(fresh), time.monotonic()

        def changed(begin, content):
            return attacker.token_text(body[:begin] + content + body[begin + len(content):])

        def ask(token, source=None, csr=request, **more):
            with Wire(self.address, source=source or self.another_address()) as wire:
                wire.send(HELLO, {"type": "join", "token": token, "csr": csr} | more)
                wire.read()
                return wire.read()["type"]
        wait_for(lambda: time.monotonic() - made_s > 1.1, LIMIT_S, "the end of a token")
        for name, outcome, token, more in (
                ("no token", "malformed", "hello", {}), ("a token that is cut off", "malformed", fresh[:-3], {}),
                ("a token with a bit turned", "malformed", fresh[:30] + chr(ord(fresh[30]) ^ 1) + fresh[31:], {}),
                ("a token of a newer version", "malformed", changed(0, b"\x09"), {}),
                ("a token of no role", "malformed", changed(73, b"\x07"), {}),
                ("a token that is a number", "malformed", 5, {}),
                ("a guessed token", "unknown_token", changed(1, os.urandom(8)), {}),
                ("a guessed secret", "wrong_secret", changed(9, os.urandom(32)), {}),
                ("a token made one of another role", "wrong_secret", changed(73, b"\x03"), {}),
                ("a token of another cluster", "other_cluster", changed(41, os.urandom(32)), {}),
                ("a used token", "used_token", used, {}), ("an expired token", "expired_token", short, {}),
                ("a revoked token", "unknown_token", revoked, {}),
                ("a token for another name", "wrong_name", bound, {"name": "n8"}),
                ("a name that is a path", "wrong_name", fresh, {"name": "../n1"}),
                ("a name that is taken", "name_taken", fresh, {"name": "n1"}),
                ("a name that was revoked", "name_taken", fresh, {"name": "gone"}),
                ("no signing request", "bad_request", fresh, {"name": "n9", "csr": "hello"})):
            self.counted(name, CONNECTIONS, f"join_{outcome}", lambda token=token, more=more: ask(token, **more), ("refused",))
        guesser = self.another_address()
        for _ in range(12):
            self.assertEqual(ask(changed(1, os.urandom(8)), guesser), "refused")
        # One failure is forgotten every six seconds: of so many tries with a good token one is too often, however slow they are.
        self.counted("many guesses from one address", CONNECTIONS, "join_too_often",
                     lambda: [ask(fresh, guesser, name="n1") for _ in range(12)][-1], ("refused",))
        self.verb("join", self.address, "--token-file", "-", "--identity", self.path("late"), "--name", "n9", text=fresh)

    def test_files_and_facts_of_a_compromised_node(self):
        """Row 36: a node that speaks for what it has not, or out of turn, from a run of its own that it pretends to work on."""
        with Wire(self.address, self.n2) as link:
            link.send(HELLO, MEMBER_SAYS)
            self.start("second", "-n", 1, "--address", self.address, "--", "sleep", "100")
            run = link.read_until("desired_run")["run"]
            for name, verdict, what in (
                    ("a fact of a run that nobody knows", "unknown_run", fact(1, "nobody")),
                    ("a fact of another node's run", "not_of_run", fact(2, self.run_id)),
                    ("a fact twice", "repeated", fact(2, self.run_id)),
                    ("a fact out of turn", "early", fact(99, run)),
                    ("a fact of another incarnation", "other_incarnation", fact(3, run, incarnation=8)),
                    ("a fact of a generation to come", "other_generation", fact(3, run, generation=99)),
                    ("a fact of a generation before", "other_generation", fact(4, run, generation=0))):
                self.counted(name, FACTS, verdict, lambda what=what: link.send(what) and "", None)
            self.files_of_a_compromised_node(run)
            self.verb("stop", run, "--address", self.address)

    def files_of_a_compromised_node(self, run):
        opened = (HELLO, {"type": "files", "node": "n2", "incarnation": 7})
        folder = os.path.join(self.state, "runs", run)

        def put(file, content=b"", offset=0, run=run, crc32c=0, size=None):
            return {"type": "put", "run": run, "file": file, "offset": offset, "bytes": len(content) if size is None else size,
                    "crc32c": crc32c}
        os.makedirs(os.path.join(folder, "logs"), exist_ok=True)
        os.symlink("/etc", os.path.join(folder, "logs", "gen-0009"))
        with open(os.path.join(folder, "logs", "huge"), "wb") as huge:
            huge.truncate(1 << 40)
        if self.units:
            give(os.path.join(folder, "logs"), *self.units.accounts["sgd-launch"])
        for name, label, said in (
                ("a file above the folder", "name", (put("logs/../../x"),)), ("an absolute file", "name", (put("/etc/passwd"),)),
                ("a file with a NUL", "name", (put("logs/a\0b"),)), ("a very long name", "name", (put("logs/" + "x" * 5000),)),
                ("a hidden file", "name", (put("logs/.x"),)), ("a file elsewhere in the run", "name", (put("events.jsonl"),)),
                ("a checkpoint above the folder", "name", ({"type": "get", "run": run, "path": "checkpoints/../../x"},)),
                ("a file behind a link", "disk", (put("logs/gen-0009/passwd"),)),
                ("a run that nobody knows", "run", (put("logs/x", run="nobody"),)), ("a run that is a path", "run", (put("logs/x", run="../x"),)),
                ("the logs of another run", "foreign_run", (put("logs/gen-0001/rank-0000.log", run=self.run_id),)),
                ("a checkpoint of another run", "foreign_run", ({"type": "get", "run": self.run_id, "path": STEP},)),
                ("an end for another run", "foreign_run", ({"type": "all_sent", "run": self.run_id},)),
                ("a chunk with a wrong check sum", "damaged", (put("logs/x", b"abc", crc32c=1), frame(b"abc", CHUNK))),
                ("more than the quota", "quota", (put("logs/huge", b"a", 1 << 40, crc32c=checksum(run, "logs/huge", 1 << 40, b"a")), frame(b"a", CHUNK))),
                ("a checkpoint without a manifest", "checkpoint", ({"type": "checkpoint_done", "run": run, "path": STEP},)),
                ("bytes that were not announced", "message", (frame(b"abc", CHUNK),)),
                ("fewer bytes than announced", "message", (put("logs/x", size=9), frame(b"abc", CHUNK))),
                ("a chunk of less than nothing", "message", (put("logs/x", size=-1),)),
                ("a chunk of 2 MiB", "message", (put("logs/x", size=2 << 20),)),
                ("an offset beyond all files", "message", (put("logs/x", b"abc", 2**63 - 2),))):
            def attack(said=said):
                with Wire(self.address, self.n2) as wire:
                    wire.send(*opened, *said)
                    self.assertEqual(wire.read()["type"], "hello")
                    try:
                        return next(message["type"] for message in iter(wire.read, None) if message["type"] != "keep")
                    except OSError:
                        return "closed"
            self.counted(name, FRAMES, f"file_{label}", attack, ("refused", "have", "closed"))
        self.assertEqual(os.path.getsize(os.path.join(folder, "logs", "huge")), 1 << 40)
        self.assertFalse(os.path.exists(os.path.join(self.state, "x")))

    def test_slow_ones(self):
        """Row 32: five seconds for the handshake with the hello, and five for the first message."""
        def silent(connect, drip=b""):
            began_s = time.monotonic()  # Of no later beginning than the coordinator's.
            with connect() as wire:
                while time.monotonic() - began_s < 11:
                    try:
                        wire.socket.settimeout(0.2)
                        while wire.socket.recv(4096):
                            pass
                        break
                    except TimeoutError:
                        wire.send(drip[:1])
                        drip = drip[1:]
                    except OSError:
                        break
                return time.monotonic() - began_s
        def plain():
            return Wire(self.address, tls=False)

        def stranger():
            return Wire(self.address)
        slow = [("a handshake without a byte", lambda: silent(plain)),
                ("a handshake byte by byte", lambda: silent(plain, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(90))),
                ("no hello", lambda: silent(stranger)),
                ("a hello byte by byte", lambda: silent(stranger, frame(HELLO | {"x": "x" * 500}))),
                ("no first message", lambda: silent(lambda: Wire(self.address, self.n2).send(HELLO))),
                ("a first message byte by byte", lambda: silent(lambda: stranger().send(HELLO), frame({"type": "join", "x": "x" * 500})))]
        before = self.count(CONNECTIONS, "slow")
        with concurrent.futures.ThreadPoolExecutor(len(slow)) as pool:
            lasted = list(pool.map(lambda one: one[1](), slow))
        for (name, _), seconds in zip(slow, lasted):
            with self.subTest(attack=name):
                self.assertTrue(4.9 < seconds < 10, seconds)
                type(self).attacks += 1
        wait_for(lambda: self.count(CONNECTIONS, "slow") >= before + len(slow), LIMIT_S, "slow ones to be counted")

    def test_idle_connections(self):
        """Row 32: thousands that say nothing, first from one address, then from many; members come in all the while."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        each = min(IDLE // IDLE_PROCESSES, hard - 200)
        for name, sources in (("from one address", ["127.0.7.7"] * IDLE_PROCESSES),
                              ("from many addresses", [f"127.0.8.{i}" for i in range(IDLE_PROCESSES)])):
            with self.subTest(attack=name):
                before, wanted = self.turned_away(), each * IDLE_PROCESSES
                idle = [subprocess.Popen([sys.executable, "-c", HOLD, source, self.address.split(":")[1], str(each)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for source in sources]
                try:
                    self.assertEqual(sum(int(one.stdout.readline()) for one in idle), wanted)
                    began_s = time.monotonic()
                    self.verb("ps", "--address", self.address)
                    print(f"{wanted} idle connections {name}: ps in {time.monotonic() - began_s:.2f} s; the limit of "
                          f"descriptors is {hard}", file=sys.stderr)
                    wait_for(lambda until=before + wanted: self.turned_away() >= until, LIMIT_S, "all of them to be turned away")
                finally:
                    for one in idle:
                        one.communicate()
                type(self).attacks += 1

    def test_impostors_of_the_coordinator(self):
        """An agent obeys no coordinator but one of its cluster; a token is told to nobody else. Row 60: nor are there two."""
        stranger = self.forge.certificate("impostor", ["sgd://coordinator/x"], self.forge.authority("another"), usage="serverAuth")
        for name, identity, words in (("agent", self.n2, "the other side is agent n2, not a coordinator"),
                                      ("client", self.eva, "the other side is client eva, not a coordinator"),
                                      ("stranger", stranger, "not of this cluster's authority")):
            with self.subTest(attack=f"an agent dials an impostor: {name}"), attacker.Impostor(identity) as impostor:
                agent = self.start(f"dials-{name}", *AGENT, "--join", impostor.address, "--state-dir", self.path("n2"))
                wait_for(lambda name=name, words=words: words in self.said(f"dials-{name}"), LIMIT_S, f"{words!r} for {name}")
                agent.kill()
                agent.wait()
                self.assertEqual(impostor.heard, b"")
                type(self).attacks += 1
        with self.subTest(attack="a joiner dials an agent"), attacker.Impostor(self.n2) as impostor:
            self.verb("join", impostor.address, "--token-file", "-", "--identity", self.path("misled"), text=self.token(), code=3)
            self.assertEqual(impostor.heard, b"")
            type(self).attacks += 1
        with self.subTest(attack="a second coordinator"):
            self.verb("coordinator", "--listen", "127.0.0.1:0", "--state-dir", self.state, code=2)
            type(self).attacks += 1

    def test_without_configuration_nothing_listens_on_tcp(self):
        daemon = self.start("plain", "coordinator", "--state-dir", self.path("plain"))
        wait_for(lambda: "listening on" in self.said("plain"), LIMIT_S, "a coordinator without an identity")
        own = open_files(daemon.pid)
        listening = []
        for table in ("tcp", "tcp6"):
            for line in read_file(f"/proc/{daemon.pid}/net/{table}").decode().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                    listening.append(fields[1].split(":")[0])
        self.assertEqual(listening, [])
        type(self).attacks += 1


if __name__ == "__main__":
    unittest.main()
