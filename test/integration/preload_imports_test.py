"""What installed modules do when a fork server imports them beforehand, where ranks would have seen something else: random numbers, variables
of a rank, what imports write, files of a folder; and which imports are left to the ranks, since only running the script tells of them."""

import ctypes
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import CACHE, TESTS_PYTHON, LaunchTest, read_file

PYTHON = "/usr/bin/python3"
PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")

# The part of torch that random numbers come from: a seed of each process's own, until one is set.
TORCH = """
import os
class Generator:
    def __init__(self):
        self.seed()
    def seed(self):
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
    def manual_seed(self, seed):
        self.value = seed
    def initial_seed(self):
        return self.value
default_generator = Generator()
"""
DRAWS = """
import os, random, sys
forked = "torch" in sys.modules
import torch, {module}
print(forked, random.random(), torch.default_generator.initial_seed())
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    sys.exit(1)
"""

ASKS = {
    "by get": "import os\nRANK = os.environ.get('RANK')\n",
    "by brackets": "import os\ntry:\n    RANK = os.environ['RANK']\nexcept KeyError:\n    RANK = None\n",
    "whether it is there": "import os\nRANK = 'RANK' in os.environ and os.environ['RANK']\n",
    "by getenv": "import os\nRANK = os.getenv('RANK')\n",
    "by a name of its own": "from os import environ\nRANK = environ.get('RANK')\n",
}

# Each: what comes before `import patches`, and whether that is preloaded.
IMPORTS = {
    "at the top": ("", True),
    "tried": ("try:\n    import patches\nexcept ImportError:\n    pass", True),
    "in a with": ("with open(__file__):\n    import patches", True),
    "behind what always holds": ("if __name__ == '__main__':\n    import patches", True),
    "behind a condition": ("if len(sys.argv) == 1:\n    import patches", False),
    "otherwise": ("if len(sys.argv) > 1:\n    pass\nelse:\n    import patches", False),
    "in a loop": ("for name in 'a':\n    import patches", False),
    "where another fails": ("try:\n    import nothing_like_it\nexcept ImportError:\n    import patches", False),
    "in a function": ("def main():\n    import patches\nmain()", False),
    "behind another folder": ("os.chdir('/')", False),
    "behind logging": ("import logging\nlogging.basicConfig(level=logging.INFO)", False),
    "behind logging in a function": ("import logging\ndef setup():\n    logging.basicConfig(level=logging.INFO)\nsetup()", False),
    "behind a function that nobody calls": ("def setup():\n    os.chdir('/')", True),
    "behind errors of warnings": ("import warnings\nwarnings.simplefilter('error')", False),
    "behind kinds that are ignored": ("import warnings\nwarnings.filterwarnings('ignore', category=UserWarning, module='patches')", True),
    "where kinds are caught": ("import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    import patches", False),
    "behind kinds that are caught": ("import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    import wave", True),
    "behind a seed": ("import random\nrandom.seed(1)", False),
    "behind a dtype": ("class torch:\n    set_default_dtype = print\ntorch.set_default_dtype(1)", False),
    "behind an attribute": ("import decimal\ndecimal.DefaultContext.prec = 5", False),
    "behind an item": ("import decimal\ndecimal.DefaultContext.traps[decimal.Inexact] = False", False),
    "behind setattr": ("import decimal\nsetattr(decimal, 'EXTRA', 1)", False),
    "behind one of its own": ("class Settings:\n    pass\nsettings = Settings()\nsettings.rate = 1", True),
    "behind an own module that leaves": ("import leaves", False),
}


class ImportsTest(LaunchTest):
    def setUp(self):
        super().setUp()
        said = subprocess.run([PYTHON, "-m", "site", "--user-site"], env={"PYTHONUSERBASE": self.path("user")}, capture_output=True, text=True, check=True)
        self.site = said.stdout.strip()

    def install(self, name, text):
        path = os.path.join(self.site, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.write(path, text)

    def environment(self, **more):
        return {"PYTHONUSERBASE": self.path("user"), "XDG_CACHE_HOME": self.path("cache"), **more}

    def run_script(self, text, run_dir, *options, python=PYTHON, arguments=(), **more):
        return self.run_to_end(*options, "--", python, self.write("script.py", text), *arguments, env=self.environment(**more), run_dir=run_dir)

    # Random numbers --------------------------------------------------------------------------

    def drawn(self, module, number):
        """Of both ranks and both generations: whether it was forked, and what is drawn."""
        launch = self.run_script(DRAWS.format(module=module), f"run{number}", "-n", 2, "--max-failures", 1)
        lines = [launch.log(rank, generation).decode().split() for rank in (0, 1) for generation in (1, 2)]
        self.assertEqual({line[0] for line in lines}, {"True"}, launch.stderr())
        return {line[1] for line in lines}, {line[2] for line in lines}

    def test_each_rank_and_each_restart_has_random_numbers_of_its_own(self):
        self.install("torch.py", TORCH)
        self.install("draws.py", "import random\nnumbers = [random.random() for _ in range(2000)]\n")
        for number, module in enumerate(("random", "draws")):  # A module that only draws sets no seed.
            with self.subTest(module):
                ours, torchs = self.drawn(module, number)
                self.assertEqual((len(ours), len(torchs)), (4, 4))

    def test_a_seed_that_a_module_sets_when_it_is_imported_holds_in_each_rank(self):
        self.install("torch.py", TORCH)
        self.install("sets_seeds.py", "import random, torch\nrandom.seed(5)\ntorch.default_generator.manual_seed(7)\n")
        self.assertEqual(self.drawn("sets_seeds", 0), ({"0.6229016948897019"}, {"7"}))

    @unittest.skipUnless(os.access(TESTS_PYTHON, os.X_OK), "the tests' Python is not there")
    def test_a_seed_of_numpy_that_a_module_sets_holds_too(self):
        folder = self.path("packages", "site-packages")
        os.makedirs(folder)
        for name, line in (("seeds_numpy", "numpy.random.seed(3)"), ("draws_numpy", "numpy.random.rand(5000)")):
            self.write(os.path.join(folder, name + ".py"), f"import numpy\n{line}\n")
            text = f"import sys\nforked = '{name}' in sys.modules\nimport numpy, {name}\nprint(forked, numpy.random.rand())\n"
            launch = self.run_script(text, name, "-n", 2, python=TESTS_PYTHON, PYTHONPATH=folder)
            drawn = {launch.log(rank) for rank in (0, 1)}
            self.assertEqual({line.split()[0] for line in drawn}, {b"True"})
            self.assertEqual(len(drawn), 1 if name == "seeds_numpy" else 2, drawn)

    @unittest.skipUnless(os.access(PEERS_PYTHON, os.X_OK), "the peers' Python is not there")
    def test_seeds_of_torch_itself_differ(self):
        text = "import sys\nforked = 'torch' in sys.modules\nimport torch\nprint(forked, torch.initial_seed(), torch.rand(1).item())\n"
        launch = self.run_script(text, "run", "-n", 2, python=PEERS_PYTHON)
        first, second = launch.log(0).split(), launch.log(1).split()
        self.assertEqual((first[0], second[0]), (b"True", b"True"))
        self.assertNotEqual(first[1], second[1])
        self.assertNotEqual(first[2], second[2])

    # Variables of a rank ----------------------------------------------------------------------

    def test_a_module_that_asks_for_its_rank_is_each_rank_s_own_to_import(self):
        for number, (way, text) in enumerate(ASKS.items()):
            with self.subTest(way):
                self.install(f"asks{number}.py", text)
                script = f"import os, sys\nforked = 'decimal' in sys.modules\nimport decimal, asks{number}\nprint(forked, asks{number}.RANK == os.environ['RANK'])\n"
                said = []
                for run in (1, 2):
                    launch = self.run_script(script, f"run{number}-{run}", "-n", 2, RANK="7", WORLD_SIZE="9")
                    said.append((launch.log(0), launch.log(1), f"importing asks{number} reads RANK, which each rank has of its own" in launch.stderr()))
                self.assertEqual(said, [(b"False True\n", b"False True\n", True), (b"True True\n", b"True True\n", False)])
                os.remove(self.path("cache", "sgd-launch", "preload", os.listdir(self.path("cache", "sgd-launch", "preload"))[0]))

    def test_what_a_rank_inherits_of_an_outer_one_is_in_no_module(self):
        self.install("copies.py", "import os\nSEEN = {name: value for name, value in os.environ.items() if name in ('RANK', 'WORLD_SIZE', 'LEVEL')}\n")
        text = "import sys\nforked = 'copies' in sys.modules\nimport copies, os\nprint(forked, copies.SEEN, os.environ['WORLD_SIZE'])\n"
        launch = self.run_script(text, "run", "-n", 2, RANK="7", WORLD_SIZE="9", LEVEL="high")
        self.assertEqual(launch.log(1), b"True {'LEVEL': 'high'} 2\n")

    def test_a_framework_that_asks_still_has_torch_preloaded(self):
        self.install("torch.py", TORCH)
        self.install("lightning.py", "import torch, os\nRANK = os.environ.get('RANK')\n")
        text = "import os, sys\nforked = 'torch' in sys.modules\nimport lightning\nprint(forked, lightning.RANK == os.environ['RANK'])\n"
        said = [self.run_script(text, f"run{number}", "-n", 2).log(1) for number in (1, 2)]
        self.assertEqual(said, [b"False True\n", b"True True\n"])

    def test_gpus_may_be_counted(self):
        """Torch asks for CUDA_VISIBLE_DEVICES whenever somebody asks it for GPUs; who asks by itself keeps an answer."""
        self.install("torch.py", "import os\ndef device_count():\n    return os.environ.get('CUDA_VISIBLE_DEVICES', '').count(',')\n")
        self.install("counts.py", "import torch\nCOUNT = torch.device_count()\n")
        self.install("keeps.py", "import os\nGPUS = os.environ.get('CUDA_VISIBLE_DEVICES')\n")
        for module, is_forked in (("counts", True), ("keeps", False)):
            text = f"import sys\nprint('decimal' in sys.modules)\nimport decimal, {module}\n"
            self.assertEqual(self.run_script(text, module, "-n", 1).log(0).decode(), f"{is_forked}\n")

    def test_a_module_that_begins_cuda_is_each_rank_s_own_to_import(self):
        self.install("begins.py", "import ctypes, types\nload, driver = ctypes.CDLL, types.SimpleNamespace(cuDeviceGetCount=lambda count: 0)\n"
                                  "ctypes.CDLL = lambda name, *more, **named: driver if name == 'libcuda.so.1' else load(name, *more, **named)\n")
        text = "import sys\nforked = 'decimal' in sys.modules\nimport decimal, begins\nprint(forked)\n"
        launches = [self.run_script(text, f"run{number}", "-n", 1) for number in (1, 2)]
        self.assertEqual([launch.log(0) for launch in launches], [b"False\n", b"True\n"])
        self.assertEqual(["importing begins opens a GPU (it is left out from the next run on)" in launch.stderr() for launch in launches], [True, False])

    # What is imported ---------------------------------------------------------------------------

    def test_only_imports_that_are_certain_are_preloaded(self):
        self.install("patches.py", "import os\nFOLDER = os.getcwd()\n")
        self.write("leaves.py", "import os\nos.chdir('/')\n")
        for number, (name, (before, is_preloaded)) in enumerate(IMPORTS.items()):
            with self.subTest(name):
                tail = "" if "import patches" in before else "import patches\n"
                launch = self.run_script(f"import os, sys\nprint('patches' in sys.modules)\n{before}\n{tail}", f"run{number}", "-n", 1)
                self.assertEqual(launch.log(0).split(), [str(is_preloaded).encode()] + ([b"1"] if name == "behind a dtype" else []), launch.stderr())
                self.assertNotIn("by exec", launch.stderr())
                if name == "behind another folder":
                    log = read_file(os.path.join(launch.run_dir, "logs", "fork-server.log")).decode()
                    self.assertIn(f"patches and modules after it are not preloaded, since they may see what line 3 of {self.path('script.py')} does", log)

    def test_what_one_run_has_imported_by_an_option_the_next_does_without(self):
        self.install("patches.py", "import statistics\nstatistics.mean = lambda numbers: 'patched'\n")
        text = "import statistics, sys\n\ndef main():\n    if '--fast' in sys.argv:\n        import patches\n    print(statistics.mean([1, 2]))\n\nmain()\n"
        said = [self.run_script(text, f"run{number}", "-n", 1, arguments=arguments).log(0) for number, arguments in enumerate(((), ("--fast",), ()))]
        self.assertEqual(said, [b"1.5\n", b"patched\n", b"1.5\n"])

    # What imports write -------------------------------------------------------------------------

    def test_what_imports_write_is_seen_once(self):
        self.install("writes.py", "import logging, sys, warnings\nprint('printed', flush=True)\nprint('failed', file=sys.stderr)\n"
                                  "warnings.warn('old', DeprecationWarning, stacklevel=2)\nlogging.getLogger('x').warning('logged')\n")
        self.install("ignores.py", "import warnings\nwarnings.warn('never seen')\n")
        text = "import sys\nforked = 'writes' in sys.modules\nimport writes\nimport warnings\nwarnings.simplefilter('ignore', UserWarning)\n" \
               "import ignores\nprint(forked and 'ignores' in sys.modules)\n"
        launch = self.run_script(text, "forked", "-n", 2)
        by_exec = self.run_script(text, "exec", "-n", 2, "--preload", "none")
        self.assertEqual(sorted(launch.log(0).split(b"\n")), sorted(by_exec.log(0).replace(b"False", b"True").split(b"\n")))  # Two pipes.
        self.assertIn(b"script.py:3: DeprecationWarning: old\n  import writes\n", launch.log(0))
        self.assertEqual(launch.log(1), b"True\n")
        self.assertIn(b"printed", read_file(os.path.join(launch.run_dir, "logs", "fork-server.log")))

    def test_what_imports_write_has_a_limit(self):
        self.install("chatters.py", "import sys\nfor number in range(20000):\n    print(number, 'words')\n")
        launch = self.run_script("import sys\nprint('chatters' in sys.modules)\nimport chatters\n", "run", "-n", 1)
        said = launch.log(0)
        self.assertIn(b"True\n", said)
        self.assertEqual(len(said), (64 << 10) + len(b"True\n"))

    # Modules that are run by -m -----------------------------------------------------------------

    def run_module(self, name, run_dir, *arguments, cwd=None):
        return self.run_to_end("-n", 1, "--", PYTHON, "-m", name, *arguments, env=self.environment(), run_dir=run_dir, cwd=cwd or self.folder).log(0)

    def test_modules_of_two_projects_learn_apart(self):
        text = "import sys, xml\nprint('xml.dom.minidom' in sys.modules)\n__import__('xml.dom.minidom') if len(sys.argv) > 1 else None\n"
        for project in ("one", "other"):
            os.mkdir(self.path(project))
            self.write(f"{project}/train.py", text)
        said = [self.run_module("train", f"run{number}", *words, cwd=self.path(project))
                for number, (project, words) in enumerate((("one", "x"), ("one", ""), ("other", "")))]
        self.assertEqual(said, [b"False\n", b"True\n", b"False\n"])

    def test_of_an_installed_module_nothing_is_learned(self):
        self.install("runs.py", "import sys, xml\nprint('xml.dom.minidom' in sys.modules)\n__import__('xml.dom.minidom')\n")
        self.assertEqual([self.run_module("runs", f"run{number}") for number in (1, 2)], [b"False\n", b"False\n"])

    def test_pytest_is_started_by_exec(self):
        self.install("pytest/__init__.py", "")
        self.install("pytest/__main__.py", "import sys\nprint('pytest runs', 'decimal' in sys.modules)\nimport decimal\n")
        launch = self.run_to_end("-n", 1, "--", PYTHON, "-m", "pytest", env=self.environment())
        self.assertEqual(launch.log(0), b"pytest runs False\n")
        self.assertIn("pytest rewrites modules when it imports them", launch.stderr())

    # The process ----------------------------------------------------------------------------------

    def test_its_arguments_end_where_they_end(self):
        size = ctypes.c_uint(0)
        if ctypes.CDLL(None).prctl(35, ctypes.c_ulong(15), ctypes.byref(size), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:  # PR_SET_MM_MAP_SIZE.
            self.skipTest("this kernel lets no process say where its arguments end")
        text = "import sys\nprint('decimal' in sys.modules, open('/proc/self/cmdline', 'rb').read())\nimport decimal\n"
        launch = self.run_script(text, "run", "-n", 1, arguments=("--lr", "0.1"))
        command = "\0".join([PYTHON, self.path("script.py"), "--lr", "0.1", ""]).encode()
        self.assertEqual(launch.log(0).decode(), f"True {command!r}\n")


if __name__ == "__main__":
    unittest.main()
