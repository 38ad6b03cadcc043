"""Workers of a Python script that are forked off an interpreter which has imported what they need: they are what `python3 script.py`
would be, and whatever cannot be forked is started by exec, with a reason."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LIMIT_S, ROOT, TESTS_PYTHON, LaunchTest, read_file, wait_for

# Whether a module is there before the script imports it tells how its process was started.
SHOW = """
import sys
forked = "decimal" in sys.modules
import decimal
import json, os
import helper
import sgd_launch
print(json.dumps({"forked": forked, "argv": sys.argv, "name": __name__, "file": __file__, "path0": sys.path[0], "spec": __spec__ is None,
                  "cmdline": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"), "helper": helper.VALUE, "rank": os.environ["RANK"],
                  "ours": [name for name in ("RANK", "SGD_TOKEN", "OPENBLAS_NUM_THREADS") if name in os.environ],
                  "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:4], "main": sys.modules["__main__"].__file__,
                  "path": sys.path, "is_main": vars(sys.modules["__main__"]) is globals(),
                  "ours_loaded": sorted(name for name in sys.modules if name.startswith("sgd_launch"))}))
"""

ENDS = """
import atexit, os, sys
import decimal

class Late:
    def __del__(self):
        os.write(1, b"del\\n")

late = Late()
cycle = [late]
cycle.append(cycle)
left_open = open(sys.argv[1] + os.environ["RANK"], "w")
left_open.write("kept")
atexit.register(os.write, 1, b"atexit\\n")
print("unflushed", end="")
"""

FAILS = """
import decimal

def inner():
    raise ValueError("loss is NaN")

inner()
"""

# Played parts of torch and of the backend, for a rank that is started by exec.
TORCH = """
import os
LEVEL = os.environ.get("LEVEL")
%s
WHOLE = True
"""
TORCH_DISTRIBUTED = """
import os
if os.environ.get("FAILS"):
    raise ImportError("not yet")
backends = []
"""
TORCH_FSDP = "import torch.distributed as dist\nbackends = list(dist.backends)\n"
BACKEND = """
import os, torch
import torch.distributed as dist
from torch.distributed import backends
def install(replace):
    if os.environ.get("REFUSES"):
        raise ImportError("the library is not there")
    backends.append((replace, torch.WHOLE))
"""
USES_TORCH = """
import importlib, importlib.util, inspect, os, sys
assert "torch" not in sys.modules
os.environ["LEVEL"] = "high"
path = list(sys.path)
assert importlib.util.find_spec("torch").origin and "torch" not in sys.modules
os.environ["FAILS"] = "yes"
try:
    import torch.distributed
except ImportError as error:
    assert str(error) == "not yet", error
del os.environ["FAILS"]
assert importlib.util.find_spec("torch.distributed").loader
import torch.distributed.fsdp
assert torch.distributed.fsdp.backends == torch.distributed.backends == [("gloo", True)], torch.distributed.backends
assert torch.LEVEL == "high" and sys.path == path
assert not [finder for finder in sys.meta_path if type(finder).__name__ == "AfterImport"]
for module in (torch, torch.distributed):
    assert "exec_module" not in vars(module.__loader__) and inspect.getsource(module)
importlib.reload(torch.distributed)
assert torch.distributed.backends == []
print("done")
"""


LETS_GO = """
def main(collected, count):
    import sys, types  # __main__ loses its own.
    import sgd_launch_rank
    for number in range(count):
        own = sys.modules[f"own_{number}"] = types.ModuleType(f"own_{number}")
        own.value, own.function = [], main
    sgd_launch_rank.gc.collect = lambda: collected.append(1)
    sgd_launch_rank.let_go(lambda name: name.startswith("own_"))
    left = [name for name, own in sys.modules.items() if name.startswith("own_") and (own.value or own.function)]
    print(len(left), len(collected))

main([], 300)
"""


class OpenDevicesTest(unittest.TestCase):
    def test_files_of_nvml_are_no_gpu_in_use(self):
        sys.path.insert(0, os.path.join(ROOT, "worker", "python"))
        self.addCleanup(sys.path.pop, 0)
        import sgd_launch_server
        for path, holds in (("/dev/nvidiactl", False), ("/dev/nvidia0", False), ("/dev/nvidia-uvm", True)):
            with unittest.mock.patch("os.readlink", return_value=path):
                self.assertEqual(sgd_launch_server.holds_gpu(), holds, path)

    def test_a_driver_that_is_loaded_says_whether_cuda_has_begun(self):
        sys.path.insert(0, os.path.join(ROOT, "worker", "python"))
        self.addCleanup(sys.path.pop, 0)
        import sgd_launch_server
        for answer, holds in ((3, False), (0, True), (100, True)):  # Not initialised; fine; no device.
            with unittest.mock.patch("ctypes.CDLL") as driver:
                driver.return_value.cuDeviceGetCount.return_value = answer
                self.assertEqual(sgd_launch_server.holds_gpu(), holds, answer)


class EndOfRankTest(unittest.TestCase):
    def test_what_hangs_beside_it_holds_no_rank(self):
        sys.path.insert(0, os.path.join(ROOT, "worker", "python"))
        self.addCleanup(sys.path.pop, 0)
        import sgd_launch_server
        done, never = [], threading.Event()
        self.addCleanup(never.set)
        sgd_launch_server.in_time(lambda: done.append(1), LIMIT_S)
        self.assertEqual(done, [1])
        sgd_launch_server.in_time(never.wait, 0.01)
        self.assertFalse(never.is_set())

    def test_the_price_of_an_end_does_not_grow_with_the_modules_that_are_let_go(self):
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "worker", "python")}
        done = subprocess.run(["/usr/bin/python3", "-c", LETS_GO], capture_output=True, text=True, env=environment, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "0 4\n"), done.stderr)


class LearnedTest(unittest.TestCase):
    def test_without_a_home_nothing_is_learned(self):
        """An account without an entry, in a container: `~` stays what it is."""
        sys.path.insert(0, os.path.join(ROOT, "worker", "python"))
        self.addCleanup(sys.path.pop, 0)
        import sgd_launch_preload
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ), \
                unittest.mock.patch("os.path.expanduser", side_effect=lambda path: path):
            os.environ.pop("XDG_CACHE_HOME", None)
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            learned = sgd_launch_preload.Learned("train.py")
            learned.modules = ["decimal"]
            learned.save()
            self.assertEqual(os.listdir("."), [])


class BackendOfExecTest(unittest.TestCase):
    """`--backend sgd` in a rank that is started by exec: the backend comes right after the script's own import of torch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        modules = os.path.dirname(self.write("modules/sgd_launch_ddp.py", BACKEND))
        shutil.copy(os.path.join(ROOT, "worker", "python", "sgd_launch_rank.py"), modules)
        self.write("torch/distributed/__init__.py", TORCH_DISTRIBUTED)
        self.write("torch/distributed/fsdp.py", TORCH_FSDP)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def run_script(self, text, inside_torch="", **more):
        self.write("torch/__init__.py", TORCH % inside_torch)
        command = ["/usr/bin/python3", os.path.join(self.folder, "modules", "sgd_launch_rank.py"), "--backend", "sgd", "--",
                   self.write("script.py", text)]
        environment = {**os.environ, "PYTHONPATH": self.folder, **more}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def test_the_script_sets_variables_before_torch_reads_them(self):
        for inside_torch in ("", "from torch import distributed"):  # Later ones do that.
            with self.subTest(inside_torch):
                done = self.run_script(USES_TORCH, inside_torch)
                self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)

    def test_a_script_without_torch(self):
        done = self.run_script("import sys, json\nprint('torch' in sys.modules)\n")
        self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)

    def test_a_backend_that_cannot_be_there_ends_the_rank(self):
        text = "try:\n    import torch.distributed\nexcept Exception:\n    print('caught')\n"
        done = self.run_script(text, REFUSES="yes")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("Traceback", done.stderr)
        self.assertIn("ImportError: the library is not there", done.stderr)


class PreloadTest(LaunchTest):
    def command(self, name, text, *arguments):
        return ["/usr/bin/python3", "-u", self.write(name, text), *arguments]

    def environment(self, **more):
        return {"XDG_CACHE_HOME": self.path("cache"), **more}

    def shown(self, launch, rank=0, generation=1):
        return json.loads(launch.log(rank, generation))

    def test_a_forked_rank_is_what_the_interpreter_would_make_of_the_script(self):
        self.write("helper.py", "VALUE = 1\n")
        command = self.command("show.py", SHOW, "--lr", "0.1 x")
        forked = self.run_to_end("-n", 2, "--", *command, env=self.environment(), run_dir="forked")
        by_exec = self.run_to_end("-n", 2, "--preload", "none", "--", *command, env=self.environment(), run_dir="exec")
        for rank in (0, 1):
            one, other = self.shown(forked, rank), self.shown(by_exec, rank)
            self.assertTrue(one.pop("forked"))
            self.assertFalse(other.pop("forked"))
            one["cmdline"] = one["cmdline"][:len(command)]  # The room of the server's own words is left behind them.
            self.assertEqual(one, other)
        self.assertFalse(os.path.exists(os.path.join(by_exec.run_dir, "logs", "fork-server.log")))

    def test_a_module_is_run_as_by_the_interpreter(self):
        self.write("show.py", SHOW)
        self.write("helper.py", "VALUE = 1\n")
        launch = self.run_to_end("-n", 2, "--", "/usr/bin/python3", "-m", "show", "x", env=self.environment(), cwd=self.folder)
        said = self.shown(launch)
        self.assertEqual((said["forked"], said["argv"], said["path0"], said["spec"]), (True, [self.path("show.py"), "x"], self.folder, False))

    def test_a_script_by_a_relative_name_a_folder_and_an_archive(self):
        text = "import decimal, sys\nprint([__file__, sys.argv, sys.path[0], repr(__spec__)[:30], __name__], flush=True)\nraise ValueError('x')\n"
        os.makedirs(self.path("folder"))
        for name in ("show.py", "folder/__main__.py"):
            self.write(name, text)
        with zipfile.ZipFile(self.path("archive.zip"), "w") as archive:
            archive.writestr("__main__.py", text)
        for number, name in enumerate(("show.py", "./show.py", "folder/../show.py", "folder", "archive.zip")):
            with self.subTest(name):
                plain = subprocess.run(["/usr/bin/python3", name, "x"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                forked = self.run_to_end("-n", 1, "--", "/usr/bin/python3", name, "x", cwd=self.folder, env=self.environment(), run_dir=f"run{number}", expect=1)
                self.assertEqual(forked.log(0).decode(), plain.stdout.decode())

    def test_exit_statuses(self):
        for number, (text, status, said) in enumerate([
                ("import decimal, sys; sys.exit(3)", 3, b""), ("import decimal, sys; sys.exit('no data')", 1, b"no data\n"),
                ("import decimal; raise SystemExit", 0, b""), ("import decimal, os; os._exit(4)", 4, b""),
                ("import decimal\nx = (", 1, b"SyntaxError"), ("import decimal, nothing_like_it", 1, b"ModuleNotFoundError")]):
            with self.subTest(text):
                launch = self.start("-n", 1, "--", *self.command(f"end{number}.py", text), env=self.environment(), run_dir=f"run{number}")
                self.assertEqual(launch.wait(), 1 if status else 0, launch.said())
                self.assertEqual([event["exit_code"] for event in launch.events("worker_exited")], [status])
                self.assertIn(said, launch.log(0))

    def test_an_interrupt_ends_it_by_the_signal(self):
        text = "import decimal, os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
        launch = self.start("-n", 1, "--", *self.command("interrupted.py", text), env=self.environment())
        launch.wait()
        self.assertEqual([event.get("signal") for event in launch.events("worker_exited")], [signal.SIGINT])
        self.assertIn(b"KeyboardInterrupt", launch.log(0))

    def test_a_traceback_has_no_frame_of_ours(self):
        command = self.command("fails.py", FAILS)
        forked = self.run_to_end("-n", 1, "--", *command, env=self.environment(), run_dir="forked", expect=1)
        by_exec = self.run_to_end("-n", 1, "--preload", "none", "--", *command, env=self.environment(), run_dir="exec", expect=1)
        self.assertIn(b"ValueError: loss is NaN", forked.log(0))
        self.assertEqual(forked.log(0), by_exec.log(0))

    def test_what_it_holds_is_let_go_at_its_end(self):
        launch = self.run_to_end("-n", 2, "--", *self.command("ends.py", ENDS, self.path("open")), env=self.environment())
        for rank in (0, 1):
            self.assertEqual(sorted(launch.log(rank).split(b"\n")), sorted([b"unflushedatexit", b"del", b""]))
            self.assertEqual(read_file(self.path(f"open{rank}")), b"kept")

    def test_restarts_come_from_the_same_server_and_read_changed_files(self):
        self.write("helper.py", "VALUE = 1\n")
        text = SHOW + f"""
open({self.path("helper.py")!r}, "w").write("VALUE = 22\\n")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), 9)
"""
        launch = self.run_to_end("-n", 1, "--max-failures", 1, "--", *self.command("show.py", text), env=self.environment())
        first, second = self.shown(launch), self.shown(launch, generation=2)
        self.assertEqual((first["helper"], second["helper"]), (1, 22))
        self.assertEqual((first["forked"], second["forked"]), (True, True))
        self.assertEqual(read_file(os.path.join(launch.run_dir, "logs", "fork-server.log")).count(b"modules loaded"), 1)

    def test_a_server_that_dies_is_replaced(self):
        self.write("helper.py", "VALUE = 1\n")
        text = SHOW + """
import time
while os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(0.05)
"""
        launch = self.start("-n", 1, "--max-failures", 1, "--", *self.command("show.py", text), env=self.environment())
        wait_for(lambda: launch.log(0).endswith(b"\n"), LIMIT_S, "the first generation")
        server = next(pid for pid in launch.pids() if read_file(f"/proc/{pid}/cmdline").startswith(b"sgd-launch\0fork server of"))
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: read_file(os.path.join(launch.run_dir, "logs", "fork-server.log")).count(b"modules loaded") == 2, LIMIT_S, "another one")
        os.kill(launch.wait_for_event("worker_started")[0]["pid"], signal.SIGKILL)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertTrue(self.shown(launch, generation=2)["forked"])

    def test_an_installed_module_with_a_thread_is_left_out_from_the_next_run_on(self):
        self.install("starts_thread.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        text = "import sys\nprint('decimal' in sys.modules, 'starts_thread' in sys.modules)\nimport decimal\nimport starts_thread\n"
        said = []
        for number in (1, 2):
            launch = self.run_to_end("-n", 1, "--", *self.command("threads.py", text), env=self.site(), run_dir=f"run{number}")
            said.append((launch.log(0), "importing starts_thread starts a thread" in launch.stderr()))
        self.assertEqual(said, [(b"False False\n", True), (b"True False\n", False)])

    def test_a_package_with_a_thread_is_left_out_whole(self):
        self.install("threads_of/__init__.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        self.install("threads_of/first.py", "")
        self.install("threads_of/second.py", "")
        text = "import sys\nprint('decimal' in sys.modules, 'threads_of' in sys.modules)\nimport decimal\nimport threads_of.first, threads_of.second\n"
        said = []
        for number in (1, 2):
            launch = self.run_to_end("-n", 1, "--", *self.command("package.py", text), env=self.site(), run_dir=f"run{number}")
            said.append((launch.log(0), "importing threads_of starts a thread" in launch.stderr()))
        self.assertEqual(said, [(b"False False\n", True), (b"True False\n", False)])

    def test_a_module_that_makes_a_folder_is_left_out_from_the_next_run_on(self):
        """Ranks would share it, and the first that ends would remove it under the others."""
        self.install("makes_folder.py", "import atexit, shutil, tempfile\nfolder = tempfile.mkdtemp()\natexit.register(shutil.rmtree, folder)\n")
        self.install("probes.py", "import tempfile\nwith tempfile.NamedTemporaryFile():\n    pass\n")
        text = "import os, sys, time\nprint('decimal' in sys.modules, 'probes' in sys.modules)\nimport decimal, probes, makes_folder\n" \
               "while os.environ['RANK'] == '1' and not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n" \
               "import atexit\nif os.environ['RANK'] == '0':\n    atexit._run_exitfuncs()\n    open(sys.argv[1], 'w').close()\n" \
               "else:\n    open(os.path.join(makes_folder.folder, 'x'), 'w').close()\n"
        os.mkdir(self.path("temporary"))
        said = []
        for number in (1, 2):
            command = self.command("makes.py", text, self.path(f"ended{number}"))
            launch = self.run_to_end("-n", 2, "--", *command, env={**self.site(), "TMPDIR": self.path("temporary")}, run_dir=f"run{number}")
            said.append((launch.log(1), "importing makes_folder makes " + self.path("temporary") in launch.stderr()))
            self.assertEqual(os.listdir(self.path("temporary")), [])
        self.assertEqual(said, [(b"False False\n", True), (b"True True\n", False)])

    def test_what_is_written_to_a_file_of_an_installed_module_is_there_once(self):
        self.install("keeps_open.py", "import os\nfile = open(os.environ['KEPT'], 'a')\nfile.write('import\\n')\n")
        command = self.command("writes.py", "import keeps_open\nkeeps_open.file.write('rank\\n')\n")
        launch = self.run_to_end("-n", 2, "--", *command, env={**self.site(), "KEPT": self.path("kept")})
        self.assertNotIn("by exec", launch.stderr())
        self.assertEqual(sorted(read_file(self.path("kept")).split()), [b"import", b"rank", b"rank"])

    def test_a_thread_from_the_start_of_python_is_laid_to_no_module(self):
        self.install("usercustomize.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        command = self.command("threads.py", "import sys\nprint('decimal' in sys.modules)\nimport decimal\n")
        launch = self.run_to_end("-n", 1, "--", *command, env=self.site(), run_dir="with")
        self.assertIn("a thread runs at the start of Python already", launch.stderr())
        os.remove(os.path.join(self.site_folder(), "usercustomize.py"))
        launch = self.run_to_end("-n", 1, "--", *command, env=self.site(), run_dir="without")
        self.assertEqual(launch.log(0), b"True\n")

    def test_a_variable_that_the_script_sets_first_is_there_when_modules_are_imported(self):
        self.install("reads_variable.py", "import os\nVALUE = os.environ.get('LEVEL')\n")
        text = "import os, sys\nforked = 'reads_variable' in sys.modules, os.environ.get('LEVEL')\nos.environ['LEVEL'] = 'high'\n" \
               "import reads_variable\nprint(forked, reads_variable.VALUE)\n"
        launch = self.run_to_end("-n", 1, "--", *self.command("sets.py", text), env=self.site())
        self.assertEqual(launch.log(0), b"(True, None) high\n")
        computed = text.replace("'high'", "str(len(sys.argv))")
        launch = self.run_to_end("-n", 1, "--", *self.command("computes.py", computed), env=self.site(), run_dir="computed")
        self.assertEqual(launch.log(0), b"(False, None) 1\n")
        self.assertIn("line 3 sets LEVEL", launch.stderr())

    def test_modules_find_the_main_module_that_becomes_the_script(self):
        self.install("keeps_main.py", "import sys, __main__\nmain, file, arguments = __main__, __main__.__file__, sys.argv[1:]\n")
        text = "import sys\nforked = 'keeps_main' in sys.modules\nimport keeps_main\n" \
               "print(forked, vars(keeps_main.main) is globals(), keeps_main.file == __file__, keeps_main.arguments)\n"
        launch = self.run_to_end("-n", 1, "--", *self.command("main.py", text, "--lr", "1"), env=self.site())
        self.assertEqual(launch.log(0), b"True True True ['--lr', '1']\n")

    def test_a_module_beside_the_script_is_never_hidden(self):
        self.write("numbers.py", "WHAT = 'own'\n")
        text = "import decimal\nimport numbers\nprint(getattr(numbers, 'WHAT', 'installed'))\n"  # decimal imports numbers, too.
        launch = self.start("-n", 1, "--", *self.command("hides.py", text), env=self.environment())
        launch.wait()
        self.assertIn("numbers beside the script hides a module", launch.stderr())

    def test_a_module_that_is_named_and_missing_is_told(self):
        launch = self.run_to_end("-n", 1, "--preload", "decimal,nothing_like_it", "--", *self.command("runs.py", "print('ran')\n"),
                                 env=self.environment())
        self.assertEqual(launch.log(0), b"ran\n")
        self.assertIn("nothing_like_it, which is named to be preloaded: ModuleNotFoundError", launch.stderr())

    def test_submodules_of_what_a_script_imports_are_learned(self):
        text = "import sys, xml\nprint('xml.dom.minidom' in sys.modules, 'fractions' in sys.modules)\n" \
               "for name in ('xml.dom.minidom', 'fractions'):\n    __import__(name)\n"  # Reading it does not tell.
        said = [self.run_to_end("-n", 2, "--", *self.command("learns.py", text), env=self.environment(), run_dir=f"run{number}").log(0)
                for number in (1, 2)]
        self.assertEqual(said, [b"False False\n", b"True False\n"])

    @unittest.skipUnless(os.access(TESTS_PYTHON, os.X_OK), "the tests' Python is not there")
    def test_generators_of_numpy_differ_between_ranks(self):
        script = self.write("draws.py", "import random, numpy\nprint(numpy.random.rand(), random.random())\n")
        launch = self.run_to_end("-n", 2, "--", TESTS_PYTHON, script, env=self.environment())
        first, second = launch.log(0).split(), launch.log(1).split()
        self.assertNotEqual(first[0], second[0])
        self.assertNotEqual(first[1], second[1])

    def site_folder(self):
        return self.path("user", "lib", "python3.%d" % self.minor(), "site-packages")

    def install(self, name, text):
        path = os.path.join(self.site_folder(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def site(self):
        return self.environment(PYTHONUSERBASE=self.path("user"))

    def minor(self):
        import subprocess
        return int(subprocess.run(["/usr/bin/python3", "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=True).stdout)


if __name__ == "__main__":
    unittest.main()
