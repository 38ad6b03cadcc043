"""What `pip install` puts in place: every module that another one of ours imports is among them."""
import os
import re
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python")
OF_THE_LAUNCHER = {"sgd_launch_preload", "sgd_launch_rank", "sgd_launch_reader", "sgd_launch_server", "sgd_launch_source", "sgd_launch_watch"}  # It starts them from its own folder.


def text_of(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


class Package(unittest.TestCase):
    def test_it_is_whole(self):
        listed = set(re.findall(r'"(sgd_launch\w*)"', re.search(r"^py-modules = (.*)$", text_of("pyproject.toml"), re.M)[1]))
        self.assertEqual(listed | OF_THE_LAUNCHER, {name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py")})
        for name in sorted(listed):
            imported = set(re.findall(r"^\s*(?:import|from) (sgd_launch\w*)", text_of(name + ".py"), re.M))
            self.assertEqual(imported - listed, set(), name)


if __name__ == "__main__":
    unittest.main()
