"""[37] Bad usage and bad job files: every error at once, with its place, exit code 2, and nothing started or created."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import SPLITS, idx_bytes, image_job, small_fashion
from harness import LAUNCHER, MARK, LaunchTest, marked, read_file

LIMIT_S = 20


class BadInputTest(LaunchTest):
    def refused(self, *arguments, words=(), expect=2, run_dir=True):
        """Runs sgd-launch in an empty folder; it must say the words, create nothing and leave no process."""
        work = self.path("work")
        os.makedirs(work, exist_ok=True)
        before = self.listing()
        options = ["--run-dir", self.path("run")] if run_dir else []
        mark = os.path.basename(self.folder)
        ended = subprocess.run([LAUNCHER, *options, *map(str, arguments)], capture_output=True, text=True, cwd=work,
                               timeout=LIMIT_S, stdin=subprocess.DEVNULL, env={**os.environ, MARK: mark})
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        for word in words:
            self.assertIn(word, ended.stderr)
        self.assertEqual(ended.stdout, "", "an error is narration, not a result")
        self.assertEqual(self.listing(), before, "something was created")
        self.assertEqual(marked(mark), [])
        return ended.stderr

    def listing(self):
        return sorted(os.path.join(folder, name) for folder, folders, files in os.walk(self.folder) for name in folders + files)

    def job(self, **changes):
        data = self.path("data")
        if not os.path.exists(data):
            small_fashion(data, 128, 64)
        job = image_job(data)
        for path, value in changes.items():
            *front, last = path.split("__")
            place = job
            for part in front:
                place = place.setdefault(part, {})
            place[last] = value
        return job

    def refused_job(self, job, *arguments, words=()):
        text = job if isinstance(job, (str, bytes)) else json.dumps(job, indent=1)
        return self.refused(*arguments, self.write("job.json", text), words=words)

    def test_an_agent_of_more_than_a_node_may_have(self):
        """All at once, before anything is dialled."""
        said = self.refused("agent", "--join", "h:1", "--slots", 70_000, "--memory", "2048TiB", "--label", "a=" + "x" * 256, run_dir=False,
                            words=["--slots: error: at most 65536, got 70000", "--memory: error: at most 1024TiB", "a label of 257 bytes"])
        self.assertEqual(said.count("error:"), 3, said)

    # The file itself.
    def test_good_job_is_accepted(self):
        self.run_to_end(self.write("job.json", json.dumps(self.job(training__epochs=1))))

    def test_missing_file(self):
        self.refused(self.path("absent.json"), words=["absent.json"])

    def test_folder_as_file(self):
        self.refused(self.folder, words=[os.path.basename(self.folder)])

    def test_not_json(self):
        self.refused_job("this is no JSON\n", words=["job.json:1:"])

    def test_empty_file(self):
        self.refused_job("", words=["job.json:", "empty"])

    def test_truncated(self):
        text = json.dumps(self.job(), indent=1)
        self.refused_job(text[: len(text) // 2], words=["job.json:", "error:"])

    def test_duplicate_key(self):
        self.refused_job('{\n "name": "a",\n "name": "b",\n "command": ["true"]\n}', words=["job.json:3:2", '"name"'])

    def test_file_of_100_megabytes(self):
        path = self.path("big.json")
        with open(path, "wb") as file:
            file.write(b'{"name": "')
            file.truncate(100 << 20)
        self.refused(path, words=["big.json", "larger than 1024 KiB"])

    def test_nesting_100000_deep(self):
        self.refused_job("[" * 100_000 + "]" * 100_000, words=["job.json:1:"])

    def test_not_utf8(self):
        self.refused_job(b'{"name": "\xff\xfe", "command": ["true"]}', words=["job.json:1:"])

    def test_what_people_write_in_place_of_json(self):
        good = '{"name": "a", "command": ["true"]}'
        for text, words in ((good.encode("utf-16"), ["job.json: error:", "UTF-16", "save it as UTF-8"]),
                            ('{\n "command": ["true"],\n "num_workers": NaN\n}', ["job.json:3:17:", "JSON has no NaN"]),
                            ("{'command': ['true']}", ["job.json:1:2:", "double quotes"]),
                            ('{\n "command": ["true"],  // The end.\n}', ["job.json:3:1:", "a comma before '}': remove it"]),
                            ("// a job\n/* of nothing */\n", ["job.json: error:", "nothing but comments"])):
            with self.subTest(text=text):
                self.refused_job(text, words=words)

    def test_what_is_no_file(self):
        os.mkfifo(self.path("pipe.json"))
        os.symlink("/dev/zero", self.path("device.json"))
        os.symlink(self.path("nowhere"), self.path("link.json"))
        os.mkdir(self.path("folder.json"))
        for name, words in (("pipe.json", ["is a FIFO"]), ("device.json", ["is a device"]), ("link.json", ["No such file"]),
                            ("folder.json", ["is a directory; name a job file"])):
            with self.subTest(name=name):
                self.refused(self.path(name), words=[name, *words])

    # Its keys and values.
    def test_unknown_key_with_a_suggestion(self):
        self.refused_job(self.job(training__optimizer__lrr=0.1), words=['"lrr"', 'did you mean "lr"'])

    def test_names_of_other_launchers(self):
        self.refused_job(self.job(max_retries=3), words=["max_retries", "recovery.max_failures"])

    def test_wrong_type(self):
        self.refused_job(self.job(training__epochs="five"), words=["epochs"])

    def test_negative(self):
        self.refused_job(self.job(training__optimizer__lr=-0.1), words=["lr"])
        self.refused_job(self.job(recovery__max_failures=-1), words=["max_failures"])

    def test_number_of_workers(self):
        for number in (0, -1, 1_000_000):
            with self.subTest(number=number):
                self.refused_job(self.job(num_workers=number), words=["num_workers"])
                self.refused_job(self.job(), "--num-workers", number, words=["num"])

    def test_batch_smaller_than_workers(self):
        self.refused_job(self.job(training__batch_size=1), words=["batch_size"])

    def test_unknown_model_optimizer_and_data_set(self):
        self.refused_job(self.job(training__model__type="cnnn"), words=["cnnn", "cnn"])
        self.refused_job(self.job(training__optimizer__type="sdg"), words=["sdg", "sgd"])
        self.refused_job(self.job(training__dataset__type="idxx"), words=["idxx", "idx"])

    def test_key_that_is_not_built_yet(self):
        self.refused_job(self.job(training__config={}), words=["config", "not supported yet"])

    def test_bad_duration(self):
        self.refused_job(self.job(stop__grace="thirty"), words=["grace"])

    def test_both_or_neither_of_training_and_command(self):
        self.refused_job(self.job(command=["true"]), words=["command"])
        self.refused_job({"name": "empty"}, words=["training", "command"])

    def test_all_errors_at_once(self):
        said = self.refused_job(self.job(training__optimizer__lrr=0.1, training__epochs="five", num_workers=0, nmae="x"),
                                words=['"lrr"', "epochs", "num_workers", '"nmae"'])
        self.assertGreaterEqual(said.count("error:"), 4)

    def test_errors_of_options_and_of_the_job_file_at_once(self):
        job = self.job(training__epochs="five", training__dataset__path=self.path("nowhere"))
        self.refused_job(job, "--num-wrkers=2", "--timeout", "soon", words=["--num-workers", "--timeout", "epochs"])
        self.refused_job(self.job(training__dataset__path=self.path("nowhere")), "--timeout", "soon", words=["--timeout", "nowhere"])

    # A model that its data does not fit, or the machine.
    def test_model_and_data_that_do_not_fit(self):
        linear = {"type": "linear", "samples": 100}
        for changes, words in (({"model": {"type": "cnn"}, "dataset": linear, "loss": "mse"}, ["job.json:", "cnn", "images"]),
                               ({"model": {"type": "mlp"}, "dataset": linear, "loss": "mse"}, ["784 inputs", "has 1"]),
                               ({"model": {"type": "mlp", "inputs": 1, "outputs": 3}, "dataset": linear, "loss": "mse"}, ["3 outputs"]),
                               ({"model": {"type": "mlp", "inputs": 100}}, ["job.json:", "100 inputs", "has 784"])):
            job = self.job()
            job["training"].update(changes)
            with self.subTest(changes=changes):
                said = self.refused_job(job, words=words)
                self.assertRegex(said, r"job\.json:[1-9]\d*:[1-9]")

    def test_a_model_larger_than_the_machine(self):
        job = self.job()
        job["training"]["model"] = {"type": "mlp", "hidden": [65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536]}
        said = self.refused_job(job, words=["parameters", "at least", "this machine has"])
        self.assertRegex(said, r"job\.json:[1-9]\d*:[1-9]")

    # Its data.
    def test_absent_data(self):
        self.refused_job(self.job(training__dataset__path=self.path("nowhere")), words=["nowhere"])

    def test_truncated_data(self):
        job = self.job()
        path = self.path("data", SPLITS["train"][0])
        content = read_file(path)
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        self.refused_job(job, words=[SPLITS["train"][0]])

    def test_data_that_is_not_idx(self):
        job = self.job()
        with open(self.path("data", SPLITS["train"][1]), "wb") as file:
            file.write(b"certainly not an IDX file, but long enough to have a header")
        self.refused_job(job, words=[SPLITS["train"][1]])

    def test_images_and_labels_that_do_not_match(self):
        job = self.job()
        small_fashion(self.path("other"), 64, 64)
        os.replace(self.path("other", SPLITS["train"][1]), self.path("data", SPLITS["train"][1]))
        self.refused_job(job, words=["64", "128"])

    def test_images_to_validate_on_of_another_size(self):
        job = self.job()
        with open(self.path("data", SPLITS["validation"][0]), "wb") as file:
            file.write(idx_bytes((64, 14, 14), bytes(64 * 14 * 14)))
        said = self.refused_job(job, words=[SPLITS["validation"][0], "1 x 14 x 14", SPLITS["train"][0], "1 x 28 x 28"])
        self.assertRegex(said, r"job\.json:[1-9]\d*:[1-9]")

    def test_a_label_that_the_model_gives_no_output_for(self):
        """Only the worker reads labels: all of them, before anything trains."""
        for number, name in enumerate((SPLITS["train"][1], SPLITS["validation"][1])):
            path = self.path(f"data-{number}", name)
            job = image_job(small_fashion(os.path.dirname(path), 128, 64))
            content = bytearray(read_file(path))
            content[-3] = 77
            with open(path, "wb") as file:
                file.write(content)
            launch = self.run_to_end(self.write("job.json", json.dumps(job)), run_dir=f"run-{number}", expect=1)
            place = (128, 64)[number] - 3
            self.assertIn(f"data file {path}: label 77 of sample {place} (the first is 0) is outside 0..9", launch.stderr())
            self.assertEqual(launch.events("worker_started"), [])

    # The run directory.
    def test_run_directory_in_use(self):
        self.run_to_end("-n", 1, "--", "true")
        self.refused("-n", 1, "--", "true", words=[self.path("run")])

    def test_run_directory_of_another_run(self):
        self.run_to_end("-n", 1, "--", "true")
        self.refused("-n", 1, "--", "true", words=["holds a run: sgd-launch resume " + self.path("run")])

    def test_run_directory_that_leads_nowhere(self):
        os.symlink(self.path("nowhere"), self.path("run"))
        self.refused("-n", 1, "--", "true", words=[self.path("run"), "is a dangling link"])

    def test_latest_run_that_is_gone(self):
        os.makedirs(self.path("work", "runs"))
        os.symlink("my-run-1", self.path("work", "runs", "latest"))
        self.refused("status", words=["the latest run in", "is gone (my-run-1)"], expect=4, run_dir=False)

    def test_run_directory_not_writable(self):
        path = self.write("file", "")
        self.refused("--run-dir", os.path.join(path, "run"), "-n", 1, "--", "true", words=[path], run_dir=False)
        self.refused("--run-dir", "/proc/run", "-n", 1, "--", "true", words=["/proc/run"], run_dir=False)

    # The command line.
    def test_unknown_option_with_a_suggestion(self):
        self.refused("--num-wrkers", 2, "--", "true", words=["--num-wrkers", "--num-workers"])

    def test_no_abbreviations(self):
        self.refused("--num-worker", 2, "--", "true", words=["--num-worker"])

    def test_missing_value(self):
        self.refused("--num-workers", words=["--num-workers"])

    def test_value_that_is_no_number(self):
        self.refused("--num-workers", "two", "--", "true", words=["num", "two"])

    def test_numbers_beyond_all_bounds(self):
        for option in ("-n", "--min-workers", "--max-failures", "--slots"):
            with self.subTest(option=option):
                said = self.refused(option, "9" * 20, "--", "true", words=[option])
                self.assertRegex(said, "must be|expected")

    def test_numbers_of_workers_on_each_of_several_nodes(self):
        place = ["--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1"]
        for number in ("two", "8x", " 4", "1.5", "0", "-1"):
            with self.subTest(number=number):
                rule = '"num_workers" must be an integer or "auto"' if number == "two" else "expected a number of workers from 1"
                self.refused(*place, f"--nproc-per-node={number}", "--", "true", words=[f'--num-workers: error: {rule}, got "{number}"'])
        self.refused(*place, "-n", 2_000_000_000, "--", "true", words=["must be at most 65536, got 4000000000"])

    def test_key_of_the_job_as_an_option(self):
        self.refused_job(self.job(), "--epochs", "5", words=["--epochs: error: ", "--set training.epochs=5"])

    def test_nothing_to_run(self):
        self.refused(words=["sgd-launch"])
        self.refused("-n", "job.json", words=['nothing to run', '"job.json" was taken as the value of --num-workers'])

    def test_program_that_is_missing(self):
        self.refused("-n", 2, "--", "no-such-program-anywhere", words=["no-such-program-anywhere"])

    def test_unknown_verb(self):
        self.refused("trian", words=["trian"])

    def test_commands_for_verbs_that_take_none(self):
        for verb in (["doctor"], ["ps"], ["runs", "list"], ["status"], ["resume"], ["nodes"], ["coordinator"], ["agent"], ["token", "list"]):
            with self.subTest(verb=verb):
                self.refused(*verb, "--", "true", words=["takes no command after --"], run_dir=False)

    def test_set_of_an_unknown_key(self):
        self.refused_job(self.job(), "--set", "training.optimizer.lrr=1", words=["lrr", "lr"])

    def test_set_without_value(self):
        self.refused_job(self.job(), "--set", "training.optimizer.lr", words=["training.optimizer.lr"])

    def test_negative_limit_on_the_command_line(self):
        self.refused_job(self.job(), "--max-failures", "-2", words=["max"])

    def test_tokens_that_are_too_long(self):
        with open(self.path("token"), "w", encoding="ascii") as file:
            file.write("x" * 2000)
        for arguments, words in ((["token", "create", "--ttl", "169h"], "expected a time from 1s to 168h"),
                                 (["join", "127.0.0.1:1", "--token-file", self.path("token"), "--identity", self.path("none")], "not a join token")):
            launch = self.run_to_end(*arguments, run_dir=None, expect=2)
            self.assertIn(words, launch.stderr())


if __name__ == "__main__":
    unittest.main()
