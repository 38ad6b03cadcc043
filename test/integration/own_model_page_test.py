"""worker/own_model.md word by word, as test/support/page_walk.py follows a page."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from page_walk import PageWalk


class OwnModelPageTest(PageWalk):
    folder_name = "clothes"

    def test_page(self):
        kinds = self.walk("worker/own_model.md")
        self.assertEqual([kinds.count(kind) for kind in ("cpp", "cmake", "json")], [1, 1, 1])
        self.assertGreater(kinds.count(""), 5)


if __name__ == "__main__":
    unittest.main()
