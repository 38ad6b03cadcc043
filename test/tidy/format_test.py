"""Every tracked C++ file is as scripts/format leaves it, and the check notices one that is not."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FORMAT = os.path.join(ROOT, "scripts", "format")


def check(folder):
    return subprocess.run(["bash", os.path.join(folder, "scripts", "format"), "--check"], capture_output=True, text=True,
                          timeout=300)


class FormatTest(unittest.TestCase):
    def test_all_files(self):
        done = check(ROOT)
        self.assertEqual(done.returncode, 0, "scripts/format changes these:\n" + done.stderr[-4000:])

    def test_one_file_out_of_form(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("scripts/format", "scripts/common.sh", "third_party/python-torch.txt", ".clang-format"):
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(ROOT, name)) as source, open(os.path.join(folder, name), "w") as copy:
                    copy.write(source.read())
            with open(os.path.join(folder, "bent.cpp"), "w") as bent:
                bent.write("int  f( ) {return 1;}\n")
            for words in (["init", "-q"], ["add", "bent.cpp"]):
                subprocess.run(["git", "-C", folder, *words], check=True, timeout=10)
            done = check(folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("bent.cpp", done.stderr)


if __name__ == "__main__":
    unittest.main()
