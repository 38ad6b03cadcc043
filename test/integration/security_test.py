"""A cluster with TLS, by its verbs: made, joined, used, and left by force; what is refused, and that nothing is replaced."""

import json
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacker import HELLO, Wire
from harness import AGENT, LAUNCHER, LIMIT_S, free_port, read_file, read_lines, wait_for
from tls_cluster import TlsCluster


class SecurityTest(TlsCluster):
    def test_init_makes_keeps_and_replaces_nothing(self):
        made = self.run_verb("init", "--state-dir", self.state)
        self.assertEqual(made.stdout.count("made "), 3)
        before = {name: read_file(self.path(name)) for name in
                  ("state/ca/ca.key", "state/identity/identity.pem", "operator/config/sgd-launch/identity/identity.pem")}
        for name, content in before.items():
            self.assertIn(b"PRIVATE KEY", content)
            self.assertEqual(stat.S_IMODE(os.stat(self.path(name)).st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(self.path(name))).st_mode), 0o700)
        again = self.run_verb("init", "--state-dir", self.state)
        self.assertEqual(again.stdout.count("kept "), 3)
        both = subprocess.run([self.launcher, "init", "--state-dir", self.state], env=self.environment("operator"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, cwd=self.folder, check=True).stdout
        self.assertLess(both.rindex("kept "), both.index("next: "))
        other = self.run_verb("token", "create", "--name", "n1", "--state-dir", self.path("none"), code=1)
        self.assertEqual(other.stderr, f"sgd-launch: no cluster's authority in {self.path('none')}: tokens are made on the coordinator's machine, by its "
                                       "account (another folder: --state-dir); sgd-launch init makes a new cluster\n")
        refused = self.run_verb("init", "--state-dir", self.path("other"), code=2)
        self.assertIn("identity of another cluster, which is not replaced", refused.stderr)
        self.assertIn("does not name x.example", self.run_verb("init", "--state-dir", self.state, "--name", "x.example", code=2).stderr)
        self.assertEqual(before, {name: read_file(self.path(name)) for name in before})

    @unittest.skipIf(os.geteuid() != 0, "root's")
    def test_init_by_root_in_the_folder_that_a_service_has_made(self):
        account = pwd.getpwnam("daemon")
        os.chmod(self.folder, 0o755)
        os.mkdir(self.state, 0o700)
        os.chown(self.state, account.pw_uid, account.pw_gid)
        for word in ("made ", "kept "):
            self.assertEqual(self.run_verb("init", "--state-dir", self.state).stdout.count(word), 3)
        owners = {os.stat(os.path.join(folder, name)).st_uid for folder, folders, names in os.walk(self.state) for name in folders + names}
        self.assertEqual(owners, {account.pw_uid})
        self.assertEqual(os.stat(self.path("operator/config/sgd-launch/identity/identity.pem")).st_uid, 0)

    @unittest.skipIf(os.geteuid() != 0, "of an agent that root has started")
    def test_no_worker_runs_as_root_unasked(self):
        refused = self.run_verb("agent", "--join", "127.0.0.1:1", "--state-dir", self.path("agent"), code=2)
        self.assertIn("without certificates anybody can claim to be any owner", refused.stderr)
        self.assertFalse(os.path.exists(self.path("agent")))

    def test_without_an_identity_only_a_unix_socket_is_served(self):
        """Loopback, too: unless it is said."""
        for address, *options in (("0.0.0.0:0",), ("0.0.0.0:0", "--insecure-loopback"), ("127.0.0.1:0",), ("[::1]:0",)):
            with self.subTest(address):
                refused = self.run_verb("coordinator", "--listen", address, *options, "--state-dir", self.state, code=2)
                self.assertIn("run `sgd-launch init` to make", refused.stderr)
        for address in ("127.0.0.1:1", "somewhere.example:1"):
            refused = self.run_verb(*AGENT, "--join", address, "--state-dir", self.path("agent"), code=2)
            self.assertIn("sgd-launch join", refused.stderr)
        # Nor does a job travel to nobody knows whom.
        self.assertIn("you have no identity", self.run_verb("ps", "--address", "somewhere.example:1", code=3).stderr)
        self.start("coordinator", "coordinator", "--listen", "127.0.0.1:0", "--insecure-loopback", "--state-dir", self.state)
        self.wait_for_words("coordinator", "listening on 127.0.0.1:")
        address = re.search(r"listening on (\S+)", self.said("coordinator")).group(1)
        self.run_verb("submit", "--detach", "-n", 1, "--address", address, "--", "true", person="stranger")
        self.assertEqual([(line["who"], line["action"]) for line in self.audit(1)], [("anybody", "submit")])

    def test_a_name_that_leads_nowhere_is_tried_again_and_told(self):
        """[24]"""
        self.start_coordinator()
        self.join(self.token("--name", "n1"), self.path("agent", "identity"))
        agent = self.start("agent", *AGENT, "--join", "no-such-host.invalid:7070", "--state-dir", self.path("agent"))
        self.wait_for_words("agent", "coordinator: cannot reach no-such-host.invalid")
        self.assertIsNone(agent.poll())

    def test_a_node_joins_works_and_is_thrown_out(self):
        self.start_coordinator()
        agent_state = self.path("agent")
        joined = self.join(self.token("--name", "n1"), os.path.join(agent_state, "identity"))
        self.assertIn("joined as agent n1", joined.stdout)
        self.start("agent", *AGENT, "--join", self.address, "--state-dir", agent_state, "--slots", 2)
        self.wait_for_words("coordinator", "node n1: connected")
        self.wait_for_words("agent", "ranks on other nodes cannot reach 127.0.0.1")
        done = self.run_verb("-n", 2, "--address", self.address, "--", "sh", "-c", "echo rank $RANK")
        self.assertEqual(sorted(done.stdout.split("\n"))[1:], ["0: rank 0", "1: rank 1"])
        self.run_verb("revoke", "n1", "--state-dir", self.state)
        self.wait_for_words("agent", "it is revoked")
        said = self.said("agent")
        self.assertEqual(said.count("--node-address"), 1, said)
        self.run_verb("revoke", "nobody", "--state-dir", self.state, code=4)

    def test_a_person_joins_and_others_stay_out(self):
        self.start_coordinator()
        refused = self.run_verb("ps", "--address", self.address, person="stranger", code=3)
        self.assertIn(f"the coordinator at {self.address} wants an identity, and you have none: ask an admin for a token", refused.stderr)
        token = self.token("--role", "client", "--name", "eva")
        joined = self.run_verb("join", self.address, "--token-file", "-", person="eva", text=token)
        self.assertIn("joined as client eva", joined.stdout)
        self.run_verb("ps", "--address", self.address, person="eva")
        self.assertIn("used up", self.join(token, self.path("second"), code=3).stderr)
        # What has no place for the answer does not ask.
        for options, way in ((["--role", "client", "--name", "bob"], "name another folder with --identity DIR\n"),
                             (["--name", "n7"], "name another folder with --identity DIR/identity, and start its agent with --state-dir DIR\n")):
            unused = self.token(*options)
            refused = self.join(unused, self.path("state", "tokens.json", "identity"), code=2)
            self.assertEqual(refused.stderr, f"sgd-launch: cannot create {self.path('state', 'tokens.json', 'identity')}: Not a directory; "
                                             f"the token is not used: {way}")
            self.assertIn("joined as", self.join(unused, self.path("of-" + options[-1])).stdout)
        nobody = f"127.0.0.1:{free_port()}"
        lost = self.run_verb("join", nobody, "--token-file", "-", "--identity", self.path("none"), text=unused, code=3)
        self.assertEqual(lost.stderr, f"sgd-launch: cannot reach {nobody}: Connection refused\n")
        self.assertIn("not replaced", self.run_verb("join", self.address, "--token-file", "-", person="eva", text=token, code=2).stderr)
        self.assertIn("no join token", self.run_verb("join", self.address, "--token-file", "-", text="hello", code=2).stderr
                      .replace("not a join token", "no join token"))
        listed = json.loads(self.run_verb("token", "list", "--json", "--state-dir", self.state).stdout)["tokens"]
        self.assertEqual([(one["role"], one["used_by"]) for one in listed], [("client", "eva"), ("client", "bob"), ("agent", "n7")])
        open_token = self.token()
        name = [one["token"] for one in json.loads(self.run_verb("token", "list", "--json", "--state-dir", self.state).stdout)["tokens"]
                if not one["used_s"]][0]
        self.run_verb("token", "revoke", name, "--state-dir", self.state)
        self.assertIn("is not known", self.join(open_token, self.path("third"), code=3).stderr)

    def start_node_of_others(self):
        """Jobs of eva, who is no admin, do not get root's account."""
        whose = ["--jobs-share-account"]
        if os.geteuid() == 0:
            whose = ["--run-as", "nobody"]
            os.chmod(self.folder, 0o755)
            os.mkdir(self.path("bin"))
            self.launcher = shutil.copy(LAUNCHER, self.path("bin", "sgd-launch"))
        self.start("agent", "agent", *whose, "--join", self.address, "--state-dir", self.path("agent"), "--slots", 2)
        self.wait_for_words("coordinator", "node n1: connected")

    def test_a_run_is_its_owners_and_nodes_are_the_admins(self):
        self.start_coordinator()
        self.join(self.token("--name", "n1"), self.path("agent", "identity"))
        self.start_node_of_others()
        for person in ("eva", "bob"):
            self.run_verb("join", self.address, "--token-file", "-", person=person,
                          text=self.token("--role", "client", "--name", person))
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "sleep", "100", person="eva").stdout.strip()
        other = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "sleep", "100", person="eva").stdout.strip()
        self.assertEqual({row["owner"] for row in json.loads(self.run_verb("ps", "--json", *there, person="bob").stdout)["runs"]},
                         {"eva"})
        self.assertIn("only eva or an admin may stop it, and you are bob",
                      self.run_verb("stop", *there, run, person="bob", code=3).stderr)
        self.assertIn("are for admins, and bob is none", self.run_verb("nodes", *there, "drain", "n1", person="bob", code=3).stderr)
        self.run_verb("stop", "--now", *there, run, person="eva")
        self.run_verb("stop", "--now", *there, other)
        self.run_verb("nodes", *there, "drain", "n1")
        operator = pwd.getpwuid(os.getuid()).pw_name
        lines = self.audit(7, "submit", "stop", "drain")
        self.assertEqual([(line["who"], line["action"], "refused" in line) for line in lines],
                         [("eva", "submit", False), ("eva", "submit", False), ("bob", "stop", True), ("bob", "drain", True),
                          ("eva", "stop", False), (operator, "stop", False), (operator, "drain", False)])
        self.assertTrue(all(line["certificate"] and line["peer"] for line in lines))

    def audit(self, count, *actions):
        """Of `actions`, or of all: who asked has its answer before the line is on the disk."""
        def said():
            lines = read_lines(self.path("state", "audit.jsonl"))
            return [line for line in lines if not actions or line["action"] in actions]
        wait_for(lambda: len(said()) >= count, LIMIT_S, f"{count} lines of the audit log")
        return said()

    def test_the_audit_log_knows_who_when_and_what(self):
        self.start_coordinator()
        self.assertIn("--name", self.run_verb("token", "create", "--role", "client", "--state-dir", self.state, code=2).stderr)
        tokens = {person: self.token("--role", "client", "--name", person) for person in ("eva", "bob")}
        for person, token in tokens.items():
            self.run_verb("join", self.address, "--token-file", "-", person=person, text=token)
        self.join(tokens["eva"], self.path("again"), code=3)
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true", person="eva").stdout.strip()
        self.run_verb("logs", *there, run, person="eva")
        self.run_verb("logs", *there, run, person="bob")
        checkpoint = "checkpoints/step-000000000001-gen-0001"
        for person in ("eva", "bob"):
            with Wire(self.address, self.path(person, "config", "sgd-launch", "identity", "identity.pem")) as wire:
                wire.send(HELLO, {"type": "client", "version": "x"}, {"type": "follow", "id": 1, "run": run, "checkpoint": checkpoint, "until_now": True})
                wire.read_until("end")
        with Wire(self.address, self.path("eva", "config", "sgd-launch", "identity", "identity.pem")) as wire:
            wire.send(HELLO, {"type": "client", "version": "x"}, {"type": "request", "id": 1, "request": "job", "run": run})
            job = wire.read_until("answer")["job"] | {"files": ["data"]}
            wire.send({"type": "request", "id": 2, "request": "submit", "job": job})
            self.assertIn("are brought by who submits it", wire.read_until("answer")["error"])
        with Wire(self.address, self.path("bob", "config", "sgd-launch", "identity", "identity.pem")) as wire:
            wire.send(HELLO, {"type": "client", "version": "x"}, {"type": "request", "id": 1, "request": "submit", "job": {"nothing": 1}})
            self.assertEqual(wire.read_until("answer")["kind"], "job")
        self.audit(10)  # The verbs below write theirs themselves.
        open_token = self.token("--role", "client", "--name", "bob")
        self.run_verb("revoke", "bob", "--state-dir", self.state)
        # Made before the name was revoked, it does not give the name back.
        self.assertIn("is not known", self.join(open_token, self.path("back"), code=3).stderr)
        operator = pwd.getpwuid(os.getuid()).pw_name
        said = [(line["who"], line["action"], line.get("run") or line.get("name") or line.get("role"), "refused" in line) for line in self.audit(12)]
        self.assertEqual(said, [
            (operator, "token_create", "eva", False), (operator, "token_create", "bob", False), ("eva", "join", "client", False),
            ("bob", "join", "client", False), ("eva", "join", "client", True), ("eva", "submit", run, False), ("bob", "read_logs", run, False),
            ("bob", "read_checkpoint", run, False), ("eva", "submit", None, True), ("bob", "submit", None, True), (operator, "token_create", "bob", False), (operator, "revoke", "bob", False)])
        for line in self.audit(12):
            self.assertTrue(line["time"] > 1e9 and line["peer"], line)
            self.assertTrue(line.get("uid") == os.getuid() or line["certificate"] or "refused" in line, line)

    def test_a_revoked_member_is_shown_out_though_it_says_nothing(self):
        """Nor takes anything: it follows a run with long logs, and has stopped reading them."""
        self.start_coordinator()
        self.join(self.token("--name", "n1"), self.path("agent", "identity"))
        self.start_node_of_others()
        self.run_verb("join", self.address, "--token-file", "-", person="eva", text=self.token("--role", "client", "--name", "eva"))
        run = self.run_verb("submit", "--detach", "-n", 1, "--address", self.address, "--", "sh", "-c", "seq 1000000; sleep 100",
                            person="eva").stdout.strip()
        log = self.path("state", "runs", run, "logs", "gen-0001", "rank-0000.log")
        wait_for(lambda: os.path.exists(log) and os.stat(log).st_size > 4 << 20, LIMIT_S, "the run's lines")
        with Wire(self.address, self.path("eva", "config", "sgd-launch", "identity", "identity.pem")) as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(HELLO, {"type": "client", "version": "x"}, {"type": "follow", "id": 1, "run": run, "logs": True})
            wire.read_until("part")
            self.run_verb("revoke", "eva", "--state-dir", self.state)
            wait_for(lambda: re.search(r"client eva \(certificate \w+\) is revoked", self.said("coordinator")), 5, self.all_said)
            self.assertIn(wire.end(), ("closed", "reset"))

    def test_who_is_revoked_hears_it_of_the_coordinator_and_comes_back_by_a_new_token(self):
        self.start_coordinator()
        for person in ("eva", "eva-again"):
            self.run_verb("join", self.address, "--token-file", "-", person=person, text=self.token("--role", "client", "--name", "eva"))
            self.run_verb("ps", "--address", self.address, person=person)
            if person == "eva":
                self.run_verb("revoke", "eva", "--state-dir", self.state)
            # In the same second, perhaps: what counts is the order.
            refused = self.run_verb("ps", "--address", self.address, person="eva", code=3)
            self.assertIn(f"the coordinator at {self.address} refuses this side's certificate: it is revoked", refused.stderr)

    def test_damaged_records_keep_a_coordinator_from_starting_and_say_the_way_out(self):
        self.start_coordinator()
        for name in ("n1", "n2", "n3"):
            self.join(self.token("--name", name), self.path(name, "identity"))
        self.run_verb("revoke", "n2", "--state-dir", self.state)
        self.kill(self.daemons[-1])
        for names, words in ((("issued.jsonl",), "is damaged in line 1"), (("tokens.json",), "Move it away"),
                             (("identity", "revoked.json"), "move it away")):
            with self.subTest(names):
                path = self.path("state", *names)
                before = read_file(path)
                for content in (bytes(40) + b"\n" + before, before.rstrip()[:-10] + b"\n"):
                    with open(path, "wb") as file:
                        file.write(content)
                    refused = self.run_verb("coordinator", "--listen", "127.0.0.1:0", "--state-dir", self.state, code=2)
                    self.assertIn(path + " is damaged", refused.stderr)
                self.assertIn("away", refused.stderr)
                with open(path, "wb") as file:
                    file.write(bytes(40) + b"\n" + before)
                self.assertIn(words, self.run_verb("revoke", "n1", "--state-dir", self.state, code=1).stderr)
                with open(path, "wb") as file:
                    file.write(before)
        # The way out: without the record of who is who, a name can be shut out all the same.
        os.rename(self.path("state", "issued.jsonl"), self.path("issued.jsonl"))
        self.run_verb("revoke", "n3", "--state-dir", self.state, code=4)
        self.run_verb("revoke", "--unknown", "n3", "--state-dir", self.state)
        with open(self.path("state", "audit.jsonl"), "ab") as file:
            file.write(b'{"time":17')
        self.start_coordinator()
        self.wait_for_words("coordinator", "audit.jsonl is damaged: 1 of its ")
        self.start("agent", *AGENT, "--join", self.address, "--state-dir", self.path("n3"))
        self.wait_for_words("agent", "it is revoked")

    def test_one_client_cannot_fill_the_queue(self):
        self.start_coordinator("--max-queued", 2)
        self.run_verb("join", self.address, "--token-file", "-", person="eva", text=self.token("--role", "client", "--name", "eva"))
        submit = ("submit", "--detach", "-n", 1, "--address", self.address)
        refused = self.run_verb(*submit, "--set", "priority=1000000", "--", "true", person="eva", code=3)
        self.assertIn('"priority" 1000000 is for admins: runs of eva may have -100 to 0', refused.stderr)
        for _ in range(2):
            self.run_verb(*submit, "--", "true", person="eva")
        self.assertIn("2 runs of eva wait in the queue, and 2 may: submit again when some have started, or stop some",
                      self.run_verb(*submit, "--", "true", person="eva", code=3).stderr)
        self.run_verb(*submit, "--set", "priority=1000", "--", "true")
        self.assertEqual(len(os.listdir(self.path("state", "runs"))) - ("latest" in os.listdir(self.path("state", "runs"))), 3)
        lines = self.audit(4, "submit")
        self.assertEqual([(line["who"], "refused" in line) for line in lines[:4]],
                         [("eva", True), ("eva", False), ("eva", False), ("eva", True)])

    def test_one_client_cannot_fill_the_disk(self):
        """What its ended runs take counts, as soon as it was looked at."""
        self.port = free_port()
        self.start_coordinator("--max-bytes", "1KiB")
        self.run_verb("join", self.address, "--token-file", "-", person="eva", text=self.token("--role", "client", "--name", "eva"))
        there = ("--address", self.address)
        submit = ("submit", "--detach", "-n", 1, *there, "--", "true")
        run = self.run_verb(*submit, person="eva").stdout.strip()
        self.run_verb("stop", run, *there, person="eva")
        coordinator = self.daemons.pop()
        coordinator.terminate()
        self.assertEqual(coordinator.wait(LIMIT_S), 0)
        self.start_coordinator("--max-bytes", "1KiB")  # It looks soon after its start, and then seldom.
        wait_for(lambda: json.loads(self.run_verb("runs", "list", "--json", *there).stdout)["runs"][0]["bytes"], LIMIT_S, "the run to be looked at")
        refused = self.run_verb(*submit, person="eva", code=3)
        self.assertRegex(refused.stderr, "the runs of eva take .* of 1KiB: sgd-launch runs list shows them")
        self.run_verb(*submit)
        self.run_verb("runs", "remove", run, *there, person="eva")
        self.run_verb(*submit, person="eva")

    def test_what_a_live_run_writes_is_bound_as_it_comes_and_a_hole_is_one_here_too(self):
        """A sparse file costs its owner what it stands for, and the coordinator nothing."""
        self.start_coordinator("--max-bytes", "10MiB")
        self.join(self.token("--name", "n1"), self.path("agent", "identity"))
        self.start_node_of_others()
        self.run_verb("join", self.address, "--token-file", "-", person="eva", text=self.token("--role", "client", "--name", "eva"))
        there = ("--address", self.address)
        job = ("-n", 1, *there, "--", "sh", "-c", "truncate -s 60M $SGD_RUN_DIR/logs/gen-0001/extra.log")

        def facts():
            """Of the newest run: its id, and what of the file has come."""
            run = json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"][-1]["run"]
            return run, os.stat(self.path("state", "runs", run, "logs", "gen-0001", "extra.log"))
        self.assertIn("what it leaves could not be kept: the runs of eva take", self.run_verb(*job, person="eva", code=1).stderr)
        self.wait_for_words("agent", "stays here: the runs of eva take")
        self.assertIn("of 10MiB: sgd-launch runs list shows them, sgd-launch runs remove makes room", self.said("agent"))
        run, came = facts()
        self.assertLessEqual(came.st_size, 10 << 20)
        self.assertLess(came.st_blocks * 512, 1 << 20)
        self.run_verb(*job)  # An admin's.
        self.assertEqual(facts()[1].st_size, 60 << 20)
        self.assertLess(facts()[1].st_blocks * 512, 1 << 20)
        self.run_verb("runs", "remove", run, *there, person="eva")
        self.run_verb("-n", 1, *there, "--", "true", person="eva")

    def test_an_ended_run_is_pinned_and_removed(self):
        self.start_coordinator()
        for person in ("eva", "bob"):
            self.run_verb("join", self.address, "--token-file", "-", person=person, text=self.token("--role", "client", "--name", person))
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true", person="eva").stdout.strip()
        folder = self.path("state", "runs", run)
        self.assertIn("has not ended", self.run_verb("runs", "remove", run, *there, person="eva", code=3).stderr)
        self.run_verb("stop", run, *there, person="eva")
        wait_for(lambda: [row["state"] for row in json.loads(self.run_verb("runs", "list", "--json", *there).stdout)["runs"]] == ["cancelled"],
                 LIMIT_S, "the run's end")
        self.run_verb("runs", "pin", run, *there, person="eva")
        self.assertIn("is pinned", self.run_verb("runs", "remove", run, *there, person="eva", code=3).stderr)
        self.run_verb("runs", "unpin", run, *there, person="eva")
        for verb in ("remove", "pin", "unpin"):
            self.assertIn(f"only eva or an admin may {verb} it, and you are bob",
                          self.run_verb("runs", verb, run, *there, person="bob", code=3).stderr)
        self.assertTrue(os.path.isdir(folder))
        self.run_verb("runs", "remove", run, *there, person="eva")
        self.assertFalse(os.path.exists(folder))
        self.assertEqual(json.loads(self.run_verb("runs", "list", "--json", *there).stdout)["runs"], [])

    def test_plain_text_to_the_door(self):
        self.start_coordinator()
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            self.assertTrue(stranger.recv(100).startswith(b"\x15\x03"))
        self.wait_for_words("coordinator", "does not speak TLS")


if __name__ == "__main__":
    unittest.main()
