"""What a Python script does before its imports, in all ways to write it: an installed module sees what it sees where nothing was imported
beforehand, and the usual ways cost no fork."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest

PYTHON = "/usr/bin/python3"
HERE = "os.path.dirname(os.path.abspath(__file__))"

# Whether a module is there before the script imports it tells whether its rank was forked.
SCRIPT = """import json, os, sys
forked = "decimal" in sys.modules
{before}
import colorsys, decimal, reads_variable
print(json.dumps([forked, getattr(reads_variable, "VALUE", "none"), getattr(colorsys, "WHAT", "installed")]))
"""

SERVED = {
    "nothing": "",
    "a constant": "os.environ['LEVEL'] = 'high'",
    "two constants": "os.environ['OTHER'] = os.environ['LEVEL'] = 'high'",
    "a default for what is there": "os.environ.setdefault('LEVEL', 'high')",
    "a default for what is missing": "os.environ.setdefault('OTHER', 'high')",
    "constants by update": "os.environ.update({'LEVEL': 'high'}, OTHER='low')",
    "a constant in an own module": "import sets_constant",
    "a constant if it is missing": "if 'LEVEL' not in os.environ:\n    os.environ['LEVEL'] = 'high'",
    "a constant if it is run": "if __name__ == '__main__':\n    os.environ['LEVEL'] = 'high'",
    "what is missing is removed": "os.environ.pop('OTHER', None)",
    "what is each rank's own": "os.environ['MASTER_PORT'] = str(len(sys.argv))",
    "a read": "level, all = os.environ.get('LEVEL'), {**os.environ}\nif os.environ['LEVEL'] == 'x':\n    print(len(os.environ))",
    "a function that nobody calls yet": "def setup():\n    os.environ['LEVEL'] = str(len(sys.argv))",
    "an own folder in front": f"sys.path.insert(0, os.path.join({HERE}, 'own'))\nimport in_own",
    "an own folder by pathlib": "from pathlib import Path\nROOT = Path(__file__).resolve().parent\nsys.path.insert(0, str(ROOT / 'own'))\nimport in_own",
    "an own folder by a function": f"def find():\n    sys.path.insert(0, {HERE} + '/own')\nfind()\nimport in_own",
    "the folder above": f"sys.path.append(os.path.dirname({HERE}))",
    "a folder at the end": f"sys.path += [os.path.join({HERE}, 'vendor')]",
    "a folder at the end that only running it tells": "sys.path.append(os.environ['LEVEL'])",
    "a module of the script's instead": f"sys.path.insert(0, os.path.join({HERE}, 'vendor'))",
}

REFUSED = {
    "a value that is computed": "os.environ['LEVEL'] = str(len(sys.argv))",
    "a condition": "if '--debug' in sys.argv:\n    os.environ['LEVEL'] = 'debug'",
    "a loop": "for name in ('LEVEL', 'OTHER'):\n    os.environ[name] = 'high'",
    "a try": "try:\n    os.environ['LEVEL'] = str(int('x'))\nexcept ValueError:\n    os.environ['LEVEL'] = 'caught'",
    "a function": "def setup():\n    os.environ['LEVEL'] = 'high'\nsetup()",
    "a function by a function": "def inner():\n    os.environ['LEVEL'] = 'high'\ndef setup():\n    inner()\nsetup()",
    "a method": "class Setup:\n    def __init__(self):\n        os.environ['LEVEL'] = 'high'\nSetup()",
    "an own module that computes": "import sets_computed",
    "a function of an own module": "import sets_in_function\nsets_in_function.setup()",
    "another name": "variables = os.environ\nvariables['LEVEL'] = str(len(sys.argv))",
    "a name of its own": "from os import environ as variables\nvariables['LEVEL'] = str(len(sys.argv))",
    "or-ed": "os.environ |= {'LEVEL': 'high'}",
    "popped": "os.environ.pop('LEVEL', None)",
    "deleted": "if 'LEVEL' in os.environ:\n    del os.environ['LEVEL']",
    "cleared": "os.environ.clear()",
    "updated": "more = {'LEVEL': 'high'}\nos.environ.update(more)",
    "a folder that only running it tells": "sys.path.insert(0, os.path.join(os.environ['FOLDER'], 'vendor'))",
    "a slice of the path": f"sys.path[:0] = [os.path.join({HERE}, 'vendor')]",
    "a folder that hides what an installed module imports": f"sys.path.insert(0, os.path.join({HERE}, 'hides'))",
    "a module put in": "import types\nsys.modules['reads_variable'] = types.ModuleType('reads_variable')",
}


class BeforeImportsTest(LaunchTest):
    def setUp(self):
        super().setUp()
        minor = subprocess.run([PYTHON, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True, check=True).stdout.strip()
        site = os.path.join("user", "lib", "python3." + minor, "site-packages")
        for folder in (site, "own", "vendor", "hides"):
            os.makedirs(self.path(folder))
        self.write(os.path.join(site, "reads_variable.py"), "import os, helped_by\nVALUE = helped_by.WHOSE + str(os.environ.get('LEVEL'))\n")
        self.write("vendor/colorsys.py", "WHAT = 'vendored'\n")
        self.write(os.path.join(site, "helped_by.py"), "WHOSE = ''\n")
        self.write("hides/helped_by.py", "WHOSE = 'own '\n")
        self.write("own/in_own.py", "import json\n")
        self.write("sets_constant.py", "import os\nos.environ['LEVEL'] = 'high'\n")
        self.write("sets_computed.py", "import os\nos.environ['LEVEL'] = str(os.getpid() > 0)\n")
        self.write("sets_in_function.py", "import os\ndef setup():\n    os.environ['LEVEL'] = 'high'\n")

    def run_script(self, text, run_dir, *options, cache="cache"):
        environment = {"PYTHONUSERBASE": self.path("user"), "XDG_CACHE_HOME": self.path(cache), "LEVEL": "given", "FOLDER": self.folder}
        return self.run_to_end("-n", 1, *options, "--", PYTHON, self.write("script.py", text), env=environment, run_dir=run_dir)

    def check(self, before, is_forked, number):
        text = SCRIPT.format(before=before)
        launch = self.run_script(text, f"run{number}")
        forked, *seen = json.loads(launch.log(0))
        _, *expected = json.loads(self.run_script(text, f"exec{number}", "--preload", "none").log(0))
        self.assertEqual((seen, forked), (expected, is_forked), launch.stderr())

    def test_usual_ways_are_served(self):
        for number, (name, before) in enumerate(SERVED.items()):
            with self.subTest(name):
                self.check(before, True, number)

    def test_what_only_running_it_tells_is_not_served(self):
        for number, (name, before) in enumerate(REFUSED.items()):
            with self.subTest(name):
                self.check(before, False, number)

    def test_the_reason_names_the_line_and_what_to_do(self):
        for number, (before, said) in enumerate([
                ("import sets_computed", f"line 2 of {self.path('sets_computed.py')} sets LEVEL before the import of colorsys"),
                ("os.environ.pop('LEVEL')", "line 3 removes LEVEL before the import of colorsys, to what only running it tells: do that before the run"),
                (REFUSED["a slice of the path"], "line 3 changes sys.path before the import of colorsys, to what only running it tells: put the folder"),
                (REFUSED["a folder that hides what an installed module imports"], "helped_by in a folder that the script puts into sys.path hides")]):
            self.assertIn(said, self.run_script(SCRIPT.format(before=before), f"run{number}").stderr())

    def test_what_a_function_imports_behind_a_change_is_not_learned(self):
        text = "import os, sys\nimport decimal\n\ndef main():\n    forked = 'decimal' in sys.modules\n    os.environ['LEVEL'] = str(len(sys.argv))\n" \
               "    import reads_variable\n    print('colorsys' in sys.modules, reads_variable.VALUE)\n    __import__('colorsys')\n\nmain()\n"
        self.assertEqual([self.run_script(text, f"run{number}").log(0) for number in (1, 2)], [b"False 1\n", b"False 1\n"])


if __name__ == "__main__":
    unittest.main()
