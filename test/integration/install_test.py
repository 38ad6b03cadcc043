"""What `cmake --install` copies is all built by the one target that scripts/run and scripts/package build."""

import glob
import os
import pwd
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

    def library_folders(self):
        """(program, folder) of those in which the loader looks for libraries, beside the system's."""
        for name in ("sgd-launch", "sgd-worker"):
            said = subprocess.run(["readelf", "-d", os.path.join(BIN_DIR, name)], capture_output=True, text=True, check=True).stdout
            for line in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", said):
                for folder in line.split(":"):
                    yield name, folder

    def test_no_library_is_taken_from_where_a_program_is_started(self):
        """An empty folder is that one, and whoever can write there would have code run by whoever starts the program."""
        for program, folder in self.library_folders():
            self.assertRegex(folder, r"^(/|\$ORIGIN/)", program)

    def test_pages_that_the_readme_links_to_are_installed_where_it_looks_for_them(self):
        text = read_file(os.path.join(BUILD, "cmake_install.cmake")).decode()
        links = set(re.findall(r"\]\(([^)#:]+)", read_file(os.path.join(ROOT, "README.md")).decode()))
        self.assertIn("launcher/guide.md", links)
        for link in sorted(links):
            folder = re.escape(os.path.join("share/doc/sgd-launch", os.path.dirname(link)).rstrip("/"))
            self.assertRegex(text, rf'{folder}/?" TYPE FILE FILES [^)]*"{re.escape(os.path.join(ROOT, link))}"', link)

    @unittest.skipIf(os.geteuid() != 0, "of what root builds")
    def test_what_root_builds_needs_nothing_that_others_cannot_open(self):
        """Its agents start these programs under the accounts of the runs' owners."""
        for program, folder in self.library_folders():
            if folder.startswith("$ORIGIN"):  # Beside the program, wherever that is.
                continue
            with self.subTest(program=program, folder=folder):
                self.assertFalse(folder.startswith(pwd.getpwuid(0).pw_dir + os.sep))
                while folder != "/":
                    self.assertTrue(os.stat(folder).st_mode & 0o001, f"{folder} is closed to others")
                    folder = os.path.dirname(folder)

    def test_the_scripts_build_that_target(self):
        for name in ("run", "package"):
            self.assertRegex(read_file(os.path.join(ROOT, "scripts", name)).decode(), r"build_release sgd_installed\b")


if __name__ == "__main__":
    unittest.main()
