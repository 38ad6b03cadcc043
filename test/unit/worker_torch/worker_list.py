#!/usr/bin/env python3
"""sgd-worker --list: what a job file may name, built in and of plug-ins, for people and for programs.

    worker_list.py build/bin/sgd-worker [unittest arguments]
"""
import json
import os
import subprocess
import sys
import unittest

WORKER = ""
KINDS = ("models", "datasets", "optimizers", "schedulers", "losses", "metrics", "operators")


def library(name):
    return os.path.join(os.path.dirname(WORKER), "..", "lib", name + ".so")


class ListTest(unittest.TestCase):
    def ask(self, *words, expect=0):
        done = subprocess.run([WORKER, "--list", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stderr if expect else done.stdout

    def test_every_kind_in_text_and_json(self):
        for kind in KINDS:
            with self.subTest(kind):
                listed = json.loads(self.ask(kind, "--json"))
                self.assertTrue(listed)
                text = self.ask(kind)
                for one in listed:
                    self.assertTrue(text.startswith(one["name"]) or "\n" + one["name"] in text, one["name"])
                    for key in one["keys"]:
                        self.assertIn(f"\n  {key['name']} ", text)

    def test_columns_are_aligned(self):
        listed = json.loads(self.ask("schedulers", "--json"))
        keys = [key for one in listed for key in one["keys"]]
        lines = [line for line in self.ask("schedulers").split("\n") if line.startswith("  ")]
        self.assertEqual(len(lines), len(keys))
        columns = {(line.index("  " + key["values"]), line.index("  " + key["description"])) for line, key in zip(lines, keys)}
        self.assertEqual(len(columns), 1, columns)

    def test_defaults_are_the_job_files(self):
        adamw = next(one for one in json.loads(self.ask("optimizers", "--json")) if one["name"] == "adamw")
        self.assertEqual({key["name"]: key.get("default") for key in adamw["keys"]}["weight_decay"], 0.01)
        cosine = next(one for one in json.loads(self.ask("schedulers", "--json")) if one["name"] == "cosine")
        self.assertTrue({key["name"]: key["required"] for key in cosine["keys"]}["t_max"])

    def test_what_plugins_register(self):
        plugins = ("--plugin", library("own_operator"), "--plugin", library("own_metrics"))
        operators = {one["name"]: one["keys"] for one in json.loads(self.ask("operators", "--json", *plugins))}
        self.assertEqual(set(operators), {"supervised", "smoothed", "measured"})
        self.assertEqual(operators["measured"], [{"name": "threshold", "values": "number from 0", "default": 0.5,
                                                  "required": False, "description": ""}])
        self.assertIn("two_layers", self.ask("models", *plugins))
        self.assertNotIn("two_layers", self.ask("models"))

    def test_what_cannot_be_listed(self):
        self.assertIn('got "optimizer"; did you mean "optimizers"?', self.ask("optimizer", expect=2))
        self.assertIn("--list needs one of", self.ask(expect=2))
        self.assertIn('--list does not take "models"', self.ask("losses", "models", expect=2))
        self.assertIn("--plugin needs a file", self.ask("losses", "--plugin", expect=2))
        self.assertIn("is not there", self.ask("losses", "--plugin", "/no/such.so", expect=2))


if __name__ == "__main__":
    WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
