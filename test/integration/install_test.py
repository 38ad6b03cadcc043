"""What `cmake --install` copies is all built by the one target that scripts/run and scripts/package build."""

import glob
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, ROOT, read_file

BUILD = os.path.dirname(BIN_DIR)


class InstallTest(unittest.TestCase):
    def test_all_that_is_installed_is_built_by_its_target(self):
        scripts = glob.glob(os.path.join(BUILD, "**", "cmake_install.cmake"), recursive=True)
        text = "".join(read_file(path).decode() for path in scripts)
        installed = {os.path.relpath(path, BUILD) for path in re.findall(rf'"({re.escape(BUILD)}/(?:bin|lib)/[^"]+)"', text)}
        self.assertIn("bin/sgd-launch", installed)
        self.assertIn("lib/libsgd-client.a", installed)
        built = subprocess.run(["ninja", "-C", BUILD, "-t", "query", "sgd_installed"], capture_output=True, text=True, check=True).stdout
        # What Python installs is copied beside the build.
        missing = sorted(path for path in installed if not path.endswith(".py") and path not in built.split())
        self.assertEqual(missing, [])

    def test_the_scripts_build_that_target(self):
        for name in ("run", "package"):
            self.assertRegex(read_file(os.path.join(ROOT, "scripts", name)).decode(), r"build_release sgd_installed\b")


if __name__ == "__main__":
    unittest.main()
