"""Attacks of an ordinary client, whose certificate is good: what is malformed, too much, or not its to have is answered with words or ends
that one connection. Nothing is started by it, and everybody else is served as before.
"""

import copy
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacked import Attacked
from attacker import CHUNK, HELLO, Wire, frame
from harness import LIMIT_S, read_file, read_lines, resident_bytes, wait_for
from installed_units import ordinary_account

OPENED = (HELLO, {"type": "client", "version": "x"})
GROWN_MAX = 64 << 20
HEAP_BYTES = 64 << 20  # Of addresses, for each heap of the C library but the first.
HEAPS_MAX = 2


def heaps_of_threads(pid):
    maps = [line.split() for line in read_file(f"/proc/{pid}/maps").decode().splitlines()]
    spans = [(*(int(number, 16) for number in one[0].split("-")), one[1]) for one in maps]
    return sum(begin % HEAP_BYTES == 0 and use == "rw-p" and rest == "---p" and last == begin + HEAP_BYTES
               for (begin, _, use), (_, last, rest) in zip(spans, spans[1:]))


class ClientAttacksTest(Attacked):
    def ask(self, request, identity=None):
        """The answer's error, or "closed"; fails where it was carried out."""
        with ordinary_account(), Wire(self.address, identity or self.eva) as wire:
            wire.send(*OPENED, request)
            try:
                answer = wire.read_until("answer")
            except OSError:
                return "closed"
            self.assertIs(answer.get("ok"), False, (request, answer))
            return answer["error"]

    def refused(self, name, request, words=""):
        with self.subTest(attack=name):
            before = self.runs()
            self.assertIn(words, self.ask(request))
            self.assertEqual(self.runs(), before)
            self.assertIsNone(self.job.poll())
            type(self).attacks += 1

    def runs(self):
        return sorted(os.listdir(os.path.join(self.state, "runs")))

    def job_of(self, **changes):
        """The resolved job of the run that is here, with changes."""
        with Wire(self.address, self.eva) as wire:
            wire.send(*OPENED, {"type": "request", "id": 1, "request": "job", "run": self.run_id})
            job = wire.read_until("answer")["job"]
        return copy.deepcopy(job) | changes

    def test_messages_that_are_none(self):
        for name, message in (
                ("no id", {"type": "request", "request": "ps"}), ("an id in words", {"type": "request", "id": "one", "request": "ps"}),
                ("an id beyond all numbers", frame(b'{"type":"request","id":1e400,"request":"ps"}')),
                ("no type", {"id": 1}), ("a type that is a list", {"type": ["request"], "id": 1}),
                ("an unknown type", {"type": "shutdown", "id": 1}), ("no request", {"type": "request", "id": 1}),
                ("a request that is a number", {"type": "request", "id": 1, "request": 7}),
                ("an unknown request", {"type": "request", "id": 1, "request": "ps; rm -rf /"}),
                ("a chunk", frame(b"abc", CHUNK)), ("an array", frame(b"[]")), ("nothing", frame(b"")), ("half a message", frame(b'{"type":')),
                ("nested 300 deep", frame(b'{"type":"request","id":1,"request":' + b"[" * 300 + b"]" * 300 + b"}")),
                ("the same key twice", frame(b'{"type":"request","id":1,"id":2,"request":"nothing"}')),
                ("a message as an agent", {"type": "node_state", "id": 1, "node": "n1"}),
                ("got of nothing without a file", {"type": "got", "id": 1})):
            if name == "got of nothing without a file":  # It is not answered: nobody follows.
                with Wire(self.address, self.eva) as wire:
                    wire.send(*OPENED, message, {"type": "request", "id": 2, "request": "nothing"})
                    self.assertEqual(wire.read_until("answer")["id"], 2)
                    type(self).attacks += 1
                continue
            self.refused(name, message)

    def test_names_of_runs(self):
        for name, run in (("above the folder", "../../etc"), ("an absolute path", "/etc"), ("with a NUL", "a\0b"), ("with an ESC", "\x1b[2J"),
                          ("a very long one", "x" * 100_000), ("a wildcard", "*"), ("SQL", "' OR 1=1 --")):
            for request in ("status", "job", "checkpoints", "stop", "resume", "search"):
                self.refused(f"{request} of a run: {name}", {"type": "request", "id": 1, "request": request, "run": run, "job": {}})
            self.refused(f"follows a run: {name}", {"type": "follow", "id": 1, "run": run, "logs": True})
        self.refused("a run that is a number", {"type": "request", "id": 1, "request": "status", "run": 5})
        self.refused("follows a run that is a list", {"type": "follow", "id": 1, "run": []})

    def test_what_is_followed(self):
        def follow(**more):
            return {"type": "follow", "id": 1, "run": self.run_id, "logs": True} | more
        self.refused("offsets that are a list", follow(offsets=[1]))
        self.refused("a rank in words", follow(rank="all"))
        self.refused("a generation that is an object", follow(generation={}))
        with Wire(self.address, self.eva) as wire:
            offsets = {"../../ca/ca.key": 0, "/etc/shadow": 0, "logs/../../x": 0, "job.json": 0, "logs/gen-0001/../../../../ca/ca.key": 0}
            wire.send(*OPENED, follow(offsets=offsets, until_now=True, rank=10**6))
            self.assertTrue(wire.read_until("answer")["ok"])
            self.assertEqual(wire.read_until("end", 5)["id"], 1)  # Not one part of any of them.
            type(self).attacks += len(offsets)
        for name, got in (("more acknowledged than sent", {"file": "events.jsonl", "offset": 2**62}), ("of a file that is not followed", {"file": "../x", "offset": 1}),
                          ("less than nothing acknowledged", {"file": "events.jsonl", "offset": -1}), ("an offset in words", {"file": "events.jsonl", "offset": "all"})):
            with self.subTest(attack=name), Wire(self.address, self.eva) as wire:
                wire.send(*OPENED, follow(events=True), {"type": "got", "id": 1} | got, {"type": "request", "id": 9, "request": "nothing"})
                while wire.read_until("answer", 1000)["id"] != 9:
                    pass
                type(self).attacks += 1
        with self.subTest(attack="thousands of follows on one connection"), Wire(self.address, self.eva) as wire:
            wire.send(*OPENED, *({"type": "follow", "id": number, "run": self.run_id, "events": True} for number in range(2000)))
            self.assertTrue(self.is_refused_or_ended(wire, 1999))
            type(self).attacks += 1

    @staticmethod
    def is_refused_or_ended(wire, last):
        """Of many messages the last one was refused, or the connection had ended."""
        try:
            while True:
                message = wire.read()
                if isinstance(message, dict) and message.get("type") == "answer" and message["id"] == last:
                    return not message["ok"]
        except OSError:
            return True

    def test_jobs_that_are_none(self):
        def submit(job, **more):
            return {"type": "request", "id": 1, "request": "submit", "job": job} | more
        good = self.job_of()
        for name, job in (("no object", []), ("empty", {}), ("a string", "job.json"), ("null", None),
                          ("a name that is a path", good | {"name": "../../x"}), ("a name with a line break", good | {"name": "a\nb"}),
                          ("a name with an ESC", good | {"name": "\x1b[31m"}), ("a name of 5,000 letters", good | {"name": "x" * 5000}),
                          ("less than no workers", good | {"num_workers": -1}), ("10^9 workers", good | {"num_workers": 10**9}),
                          ("2^64 workers", good | {"num_workers": 2**64}), ("half a worker", good | {"num_workers": 0.5}),
                          ("no command", good | {"command": []}), ("a command of numbers", good | {"command": [1, 2]}),
                          ("a command with a NUL", good | {"command": ["sh\0x"]}), ("10^6 cores", good | {"per_worker": {"cpus": 10**6}}),
                          ("memory below nothing", good | {"per_worker": {"cpus": 1, "memory": -1}}),
                          ("a key that nobody knows", good | {"run_as": "root"}), ("a run folder of its choice", good | {"run_dir": "/etc"}),
                          ("a priority beyond all numbers", good | {"priority": 10**30}), ("a priority that is a word", good | {"priority": "first"}),
                          ("an interval of nothing", good | {"heartbeat": {"interval": "0s"}}), ("a grace of a century", good | {"stop": {"grace": "-1s"}}),
                          ("a program of the coordinator's", good | {"callbacks": [{"type": "exec", "command": ["sh", "-c", "id"]}]}),
                          ("files where it likes", good | {"callbacks": [{"type": "csv", "folder": "/etc"}]}),
                          ("the record of who may read", good | {"callbacks": [{"type": "json", "file": "nodes.jsonl"}]}),
                          ("a file above its folder", good | {"callbacks": [{"type": "json", "file": "../x.json"}]}),
                          ("redirects of 60 KB", good | {"process": {"redirects": "0:1," * 15_000}}), ("tee of 60 KB", good | {"process": {"tee": "3" * 60_000}}),
                          ("a job of 300 KB", good | {"command": ["echo", "x" * 300_000]}),
                          ("100,000 arguments", good | {"command": ["echo"] + ["x"] * 100_000}),
                          ("labels without end", good | {"placement": {"labels": {f"l{i}": "x" for i in range(20_000)}}})):
            self.refused(f"submits a job: {name}", submit(job))
            self.refused(f"plans a job: {name}", {"type": "request", "id": 1, "request": "plan", "job": job})
        self.refused("no job at all", {"type": "request", "id": 1, "request": "submit"})
        tune = {"parameters": {"lr": {"uniform": [0, 1]}}, "metric": "loss", "mode": "min"}
        program = {key: value for key, value in good.items() if key in ("name", "command", "num_workers")} | {"tune": tune}

        def of(**more):
            return {"given": program | more, "folder": "/"}

        def over(path, value):
            return of(tune=tune | {"parameters": {path: {"choice": [value]}}})
        for name, base in (("a string", "job.json"), ("nothing of it", {}), ("no folder", {"given": program}), ("a list", {"given": [], "folder": "/"}),
                           ("a folder that is a number", {"given": program, "folder": 5}), ("no experiment", {"given": good, "folder": "/"}),
                           ("what another run has saved", of(resume_from=self.run_id)), ("a path to begin from", of(resume_from="/etc")),
                           ("10^9 points", of(tune=tune | {"parameters": {f"p{i}": {"grid": list(range(1000))} for i in range(3)}})),
                           ("10^9 trials", of(tune=tune | {"samples": 10**9})), ("trials that write where they like", over("callbacks", [{"type": "csv", "folder": "/etc"}])),
                           ("trials that start programs", over("checkpoint", {"after_save": {"command": ["id"]}})), ("trials that begin elsewhere", over("resume_from", "/etc")),
                           ("trials in front of all", over("priority", 10**6)), ("trials with trials", over("tune.samples", 5))):
            self.refused(f"submits an experiment: {name}", submit(good, base=base))
        self.refused("a job with trials and without what they are made of", submit(good | {"tune": tune}))
        self.refused("a request's id that is a number", submit(good, request_id=5))

    def test_orders_to_nodes(self):
        for order in ("drain", "undrain", "remove", "set-slots", "reboot", "", None, 5):
            self.refused(f"orders {order}", {"type": "request", "id": 1, "request": "order_node", "node": "n1", "order": order, "slots": 0})
        self.refused("orders a node that is none", {"type": "request", "id": 1, "request": "order_node", "node": "../n1", "order": "drain"})

    def test_a_run_of_somebody_else(self):
        """By whatever name it calls it, and by whatever it says of itself."""
        for name, more in (("by its id", {}), ("at once", {"at_once": True}), ("with a grace of nothing", {"grace_s": 0}), ("as a signal", {"why": "signal", "signal": 9}),
                           ("as its owner", {"owner": "operator"}), ("as an admin", {"is_admin": True, "role": "admin"}), ("by a prefix", {"run": self.run_id[:-2]}),
                           ("the newest", {"run": ""})):
            self.refused(f"stops {name}", {"type": "request", "id": 1, "request": "stop", "run": self.run_id} | more, "")
        self.refused("resumes what still runs", {"type": "request", "id": 1, "request": "resume", "run": self.run_id, "job": self.job_of()})

    def test_signals_to_the_ranks_of_somebody_else(self):
        """Its ranks would end by one: they have no handler."""
        asked = {"type": "request", "id": 1, "request": "signal", "run": self.run_id}
        for name, more in (("by its id", {}), ("the other one", {"signal": 12}), ("as its owner", {"owner": "operator"}), ("as an admin", {"is_admin": True}),
                           ("by a prefix", {"run": self.run_id[:-2]}), ("the newest", {"run": ""}), ("in a fraction", {"signal": 10.5})):
            self.refused(f"signals {name}", asked | {"signal": 10} | more, "only")
        for number in (0, -10, 9, 15, 19, 64, 2**31 + 10, 2**64, "10", None, [10], 1e300):
            self.refused(f"signal {number!r}", asked | {"signal": number})
        wait_for(lambda: read_file(os.path.join(self.state, "audit.jsonl")).count(b'"signal"') >= 7, LIMIT_S, "who asked, in the audit log")

    def test_the_search_of_somebody_else(self):
        """Who may say which trials there are: whoever may end the experiment, and of an experiment alone."""
        asked = {"type": "request", "id": 1, "request": "search", "run": self.run_id, "line": '{"type": "no_more"}'}
        for name, more in (("by its id", {}), ("as its owner", {"owner": "operator"}), ("by a prefix", {"run": self.run_id[:-2]}), ("its end", {"line": "", "why": "x"})):
            self.refused(f"says its trials: {name}", asked | more, "only")
        with Wire(self.address, self.eva) as wire:
            wire.send(*OPENED, {"type": "request", "id": 1, "request": "submit", "job": self.job_of(num_workers=60_000, name="no-experiment")})
            own = wire.read_until("answer")["run"]
        for name, more in (("nothing", {"line": ""}), ("both", {"why": "x"}), ("too much", {"line": "x" * 65_537}), ("too much of an end", {"line": "", "why": "x" * 4097}),
                           ("a number", {"line": 5}), ("of a run that is no experiment", {}), ("by too long a name", {"searcher": "x" * 65})):
            self.refused(f"says of its own run: {name}", asked | {"run": own} | more)
        goes_on = {"type": "request", "id": 1, "request": "resume", "run": self.run_id}
        self.refused("makes somebody else's experiment go on", goes_on, "only")
        self.refused("makes the trials of somebody else's experiment", goes_on | {"searcher": "eva"}, "only")
        for name, more in (("that is no experiment", {}), ("with fewer samples than none", {"samples": -1}), ("with a name that is too long", {"searcher": "x" * 65})):
            self.refused(f"makes its own run go on {name}", goes_on | {"run": own} | more)
        with Wire(self.address, self.eva) as wire:
            wire.send(*OPENED, {"type": "request", "id": 1, "request": "stop", "run": own, "at_once": True})
            self.assertTrue(wire.read_until("answer")["ok"])

    def test_the_request_of_somebody_else(self):
        """The same name of a request, said by two: each has a run of its own."""
        operator = self.path("config/sgd-launch/identity/identity.pem")
        job = self.job_of(num_workers=60_000, name="far-too-large")
        runs = {}
        for name, identity in (("operator", operator), ("eva", self.eva)):
            with Wire(self.address, identity) as wire:
                wire.send(*OPENED, {"type": "request", "id": 1, "request": "submit", "job": job, "request_id": "the-same"})
                runs[name] = wire.read_until("answer")["run"]
                wire.send({"type": "request", "id": 2, "request": "stop", "run": runs[name], "at_once": True})
                self.assertTrue(wire.read_until("answer")["ok"])
        self.assertNotEqual(runs["operator"], runs["eva"])
        type(self).attacks += 1

    @unittest.skipIf("SGD_SANITIZED" in os.environ, "of programs as quick as they are")
    def test_whoever_floods_is_the_one_who_waits(self):
        """Ten thousand questions, not one answer taken: the connection ends, nothing is kept, others are answered."""
        coordinator = self.daemons[0].pid
        before = resident_bytes(coordinator)
        for name, identity, request in (("ps", self.eva, {"request": "ps", "all": True}), ("nodes", self.eva, {"request": "nodes"}),
                                        ("the job", self.eva, {"request": "job", "run": self.run_id}),
                                        ("what is refused", self.eva, {"request": "x" * 1000})):
            with self.subTest(attack=f"asks for {name} and takes no answer"), Wire(self.address, identity) as wire:
                wire.socket.settimeout(2)
                ask = frame({"type": "request", "id": 1} | request)
                wire.send(*OPENED)
                try:
                    for _ in range(200):
                        wire.socket.sendall(ask * 200)
                except OSError:
                    pass
                self.verb("ps", "--address", self.address)
                type(self).attacks += 1
        wait_for(lambda: resident_bytes(coordinator) < before + GROWN_MAX, LIMIT_S, "the memory of what was asked for to come back")
        self.assertLessEqual(heaps_of_threads(coordinator), HEAPS_MAX)  # Each would keep what its thread once needed.

    def test_nothing_of_it_is_started(self):
        """What the tests above have tried has left no event at the job, and no word that a terminal would obey."""
        events = read_lines(os.path.join(self.run_folder(), "events.jsonl"))
        self.assertEqual({event["generation"] for event in events if "generation" in event}, {1})
        self.assertNotIn(b"\x1b", read_file(self.path("coordinator.log")))
        audit = os.path.join(self.state, "audit.jsonl")
        self.assertNotIn(b"\x1b", read_file(audit))
        read_lines(audit)


if __name__ == "__main__":
    unittest.main()
