"""configs/porting.md and the examples that it names: what it says exists, exists; what is ported trains, on a little data.

And the table of RaySGD's cases in README.md of this folder names tests that exist.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import small_fashion
from harness import BIN_DIR, CONFIGS, LAUNCHER, ROOT, LaunchTest, read_file
from images import image_masks

LIBRARIES = os.path.join(BIN_DIR, "..", "lib")


class ExamplesTest(LaunchTest):
    """Their examples on a little data, as their smoke tests."""

    def example(self, name, dataset, *options, **settings):
        sets = {"dataset": dataset, "epochs": 2, **settings}
        words = [word for key, value in sets.items() for word in ("--set", f"training.{key}={json.dumps(value)}")]
        return self.run_to_end(os.path.join(CONFIGS, name + ".json"), "--num-workers", 2, *words, *options)

    def of(self, name):
        """The data set of a job of configs/."""
        lines = read_file(os.path.join(CONFIGS, name + ".json")).decode().splitlines()
        return json.loads("\n".join(line for line in lines if not line.startswith("//")))["training"]["dataset"]

    def test_cifar(self):
        for name, count in (("train.bin", 64), ("test.bin", 20)):
            self.write(name, b"".join(bytes([number % 10]) + bytes([number % 10 * 25]) * 3072 for number in range(count)))
        dataset = {**self.of("cifar10"), "train": self.path("train.bin"), "validation": self.path("test.bin")}
        launch = self.example("cifar10", dataset, "--set", "training.model.width=4", "--set", "training.batch_size_per_worker=16")
        self.assertEqual([(line["batch_count"], line["num_samples"]) for line in launch.metrics("train")], [(2, 64)] * 2)

    def test_segmentation(self):
        masks = image_masks(self.path("data"))
        dataset = {**self.of("segmentation"), **{key: masks[key] for key in ("train", "validation", "size")}}
        launch = self.example("segmentation", dataset, "--set", "training.model.channels=[4,8,8]")
        line = launch.metrics("validate")[-1]
        self.assertEqual((len(line["val_iou"]), len(line["val_class_accuracy"])), (21, 21))
        self.assertTrue(0 <= line["val_mean_iou"] <= 1)

    def test_large_csv(self):
        for name, rows in (("rows-1", 300), ("rows-2", 100), ("test", 50)):
            self.write(f"{name}.csv", "age,height,weight\n" + "".join(f"{i % 20 + 8},{i % 7},{i % 5}\n" for i in range(rows)))
        dataset = {**self.of("large_csv"), "train": self.path("rows-*.csv"), "validation": self.path("test.csv")}
        launch = self.example("large_csv", dataset)
        self.assertEqual(launch.metrics("train")[0]["num_samples"], 200)  # Half of the rows are of age 18 and above.

    def ported(self):
        """The folder of the guides' code, with its library."""
        source = shutil.copytree(os.path.join(ROOT, "worker", "examples", "raysgd"), self.path("raysgd"), ignore=shutil.ignore_patterns("build"))
        os.mkdir(os.path.join(source, "build"))
        os.symlink(os.path.join(LIBRARIES, "ported.so"), os.path.join(source, "build", "ported.so"))
        return source

    def test_mnist(self):
        """The network of Tune's MNIST page, on fewer images."""
        data = small_fashion(self.path("data"), 2048, 256)
        launch = self.run_to_end(os.path.join(self.ported(), "mnist.json"), "--set", f"training.dataset.path={data}", "--set", "training.epochs=12")
        self.assertEqual([(line["batch_count"], line["num_samples"]) for line in launch.metrics("train")], [(8, 1024)] * 12)
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.5)

    def test_quick_start(self):
        """Ray Train's quick start, with the data of its job cut down."""
        source = self.ported()
        data = small_fashion(self.path("data"), 2000, 200)
        launch = self.run_to_end(os.path.join(source, "quick_start.json"), "--num-workers", 2, "--set", f"training.dataset.path={data}")
        losses = [line["val_loss"] for line in launch.metrics()]
        self.assertEqual((len(losses), losses), (3, sorted(losses, reverse=True)))
        simple = self.run_to_end(os.path.join(source, "job.json"), run_dir="simple")
        self.assertEqual(len(simple.metrics()), 10)


class PortingTest(unittest.TestCase):
    """What configs/porting.md says exists, exists; a key of which it says "not yet" is refused."""

    NOT_YET = {"x-not-supported-yet", "x-values-not-supported-yet", "x-above-maximum"}

    @classmethod
    def setUpClass(cls):
        cls.text = read_file(os.path.join(ROOT, "configs", "porting.md")).decode()
        rows = [line.strip().strip("|").split(" | ", 1) for line in cls.text.splitlines() if line.startswith("| ")]
        cls.ours = [row[1] for row in rows]
        cls.schema = json.loads(read_file(os.path.join(ROOT, "configs", "job.schema.json")))

    def names(self, expression):
        return {match for cell in self.ours for match in re.findall(rf"`{expression}", cell)}

    def entries(self, at, path):
        """All entries of the schema that a path of keys may mean."""
        if "$ref" in at:
            return self.entries(self.schema["definitions"][at["$ref"].rsplit("/", 1)[-1]], path)
        if not path:
            return [at]
        here = self.entries(at["properties"][path[0]], path[1:]) if path[0] in at.get("properties", {}) else []
        return here + [entry for one in at.get("oneOf", []) for entry in self.entries(one, path)]

    def test_keys(self):
        keys = self.names(r"((?:training|checkpoint|recovery|heartbeat|per_worker|placement|report)\.[a-z_.]+)")
        self.assertGreater(len(keys), 30)
        for key in keys - {"training.function.num_epochs"}:
            self.assertTrue(self.entries(self.schema, key.split(".")), key)

    def test_keys_that_do_not_exist_yet(self):
        keys = self.names(r"([a-z_.]+)(?:` as an object|`): not yet")
        self.assertTrue(keys)
        for key in keys:
            found = self.entries(self.schema, key.split("."))
            self.assertTrue(any(self.NOT_YET & set(entry) or any(self.NOT_YET & set(one) for one in entry.get("oneOf", [])) for entry in found), key)

    def test_calls(self):
        folders = [os.path.join(ROOT, *parts, "include", "sgd") for parts in (["worker"], ["launcher", "client"])]
        headers = "".join(read_file(os.path.join(folder, name)).decode() for folder in folders for name in sorted(os.listdir(folder)))
        calls = self.names(r"(?:session|setup|step|trainer)\.(\w+)\(") | self.names(r"(?:sgd::)?(\w+)\(\)`") | self.names(r"sgd::(\w+)`")
        self.assertGreater(len(calls), 25)
        for call in calls:
            self.assertRegex(headers, rf"\b{call}\b")

    def test_commands(self):
        for verb in self.names(r"sgd-launch ([a-z]+)[ `]"):
            done = subprocess.run([LAUNCHER, verb, "--help"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, verb)

    def test_links(self):
        for link in re.findall(r"\]\(([^)#]+)\)", self.text):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "configs", link)), link)

    def test_functions(self):
        """Those of the guides' code are registered by the example."""
        source = read_file(os.path.join(ROOT, "worker", "examples", "raysgd", "ported.cpp")).decode()
        for name in re.findall(r'SGD_REGISTER_\w+\(\s*"(\w+)"', source):
            self.assertIn(f"`{name}`", self.text)

class TableTest(unittest.TestCase):
    """README.md's table of cases names tests that exist."""

    TREES = {".txt": ("scenario", "transcripts"), ".cpp": ("unit",), "worker": ("unit",), ".py": ("integration",)}

    def file_of(self, name):
        tree = next(parts for mark, parts in self.TREES.items() if name.endswith(mark) or name.startswith(mark))
        return read_file(os.path.join(ROOT, "test", *tree, name)).decode()

    def test_cases(self):
        text = read_file(os.path.join(ROOT, "test", "integration", "README.md")).decode()
        rows = [line for line in text[text.index("| case |"):].splitlines()[2:] if line.startswith("| ")]
        self.assertGreater(len(rows), 40)
        for row in rows:
            case, shown = row.strip("| ").split(" | ")
            self.assertIn("`", shown, case)
            source = ""
            for name in re.findall(r"`([^`]+)`", shown):
                if name.startswith("test_"):
                    self.assertIn(f"def {name}(", source, f"{case}: {name}")
                elif name.endswith((".py", ".cpp", ".txt")):
                    source = self.file_of(name)
                    self.assertTrue(source, f"{case}: {name}")


if __name__ == "__main__":
    unittest.main()
