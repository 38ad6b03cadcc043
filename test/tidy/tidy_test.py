"""Holds the source rules: each rule over the whole tree, and each rule over a planted violation, so that no rule
is here that cannot fire. Run it by hand as: python3 test/tidy/tidy_test.py
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules
import source

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = "#pragma once\n// What it is for.\n"

# Rule, a tree that breaks it, the line that must be named, a neighbour that must pass.
PLANTED = [
    ("include_arrows", {"launcher/core/a.cpp": '\n#include "launcher/net/b.hpp"\n'}, 2,
     {"launcher/net/a.cpp": '#include "launcher/core/b.hpp"\n'}),
    ("include_arrows", {"launcher/agent/a.cpp": '#include "launcher/coordinator/b.hpp"\n'}, 1,
     {"launcher/agent/a.cpp": '#include "launcher/net/b.hpp"\n#include "launcher/process/c.hpp"\n'}),
    ("include_arrows", {"launcher/net/a.cpp": '#include "launcher/storage/b.hpp"\n'}, 1,
     {"launcher/cli/a.cpp": '#include "launcher/agent/b.hpp"\n'}),
    ("include_arrows", {"worker/torch/a.cpp": '#include "launcher/core/b.hpp"\n'}, 1,
     {"worker/torch/a.cpp": '#include "worker/collective/b.hpp"\n'}),
    ("include_arrows", {"worker/data/a.cpp": '#include "worker/torch/b.hpp"\n'}, 1,
     {"worker/data/a.cpp": '#include "worker/core/b.hpp"\n'}),
    ("include_arrows", {"worker/builtin/a.cpp": '#include "common/base/b.hpp"\n'}, 1,
     {"worker/builtin/a.cpp": '#include "sgd/registry.hpp"\n'}),
    ("include_arrows", {"common/a.cpp": '#include "a.hpp"\n'}, 1, {"common/a.cpp": '#include "common/a.hpp"\n'}),
    ("include_arrows", {"launcher/newcomer/a.cpp": "\n"}, 1, {"launcher/cli/a.cpp": "\n"}),
    ("outside_headers", {"launcher/core/a.hpp": "#include <nlohmann/json.hpp>\n"}, 1,
     {"common/json/nlohmann.hpp": "#include <nlohmann/json.hpp>\n"}),
    ("outside_headers", {"worker/core/a.cpp": "#include <torch/torch.h>\n"}, 1,
     {"worker/torch/a.cpp": "#include <torch/torch.h>\n"}),
    ("outside_headers", {"common/a.cpp": "#include <boost/asio/post.hpp>\n"}, 1,
     {"launcher/net/a.cpp": "#include <boost/asio/post.hpp>\n"}),
    ("outside_headers", {"launcher/cli/a.cpp": "#include <openssl/ssl.h>\n"}, 1,
     {"launcher/net/a.cpp": "#include <openssl/ssl.h>\n"}),
    ("pure_core", {"launcher/core/a.cpp": "#include <thread>\n"}, 1, {"launcher/core/a.cpp": "#include <map>\n"}),
    ("pure_core", {"launcher/core/a.cpp": "\n\n#include <filesystem>\n"}, 3, {"launcher/process/a.cpp": "#include <thread>\n"}),
    ("banned_calls", {"launcher/core/a.cpp": "auto t = std::chrono::steady_clock::now();\n"}, 1,
     {"launcher/core/a.cpp": "// steady_clock::now() is not called.\n", "launcher/net/clock.cpp": "Clock::now();\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "std::random_device device;\n"}, 1,
     {"launcher/net/random.cpp": "std::random_device device;\n", "common/a.cpp": 'f("rand()");\n'}),
    ("banned_calls", {"launcher/net/a.cpp": "\nstd::this_thread::sleep_for(x);\n"}, 2, {"launcher/net/a.cpp": "asleep(x);\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "thread.detach();\n"}, 1,
     {"launcher/net/a.cpp": "// tidy: allow detach: the pidfd owns it.\nprocess.detach();\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "co_await f(Agg{1});\n"}, 1,
     {"launcher/net/a.cpp": "if (co_await f()) {\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "co_await g([x] { });\n"}, 1, {"launcher/net/a.cpp": "co_await g(x);\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "using namespace std;\n"}, 1,
     {"launcher/net/a.cpp": "using namespace std::chrono_literals;\nvoid f() {\n  using namespace core::event;\n}\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "\nusing namespace core::event;\n"}, 2, {"launcher/net/a.cpp": "namespace a = b;\n"}),
    ("banned_calls", {"launcher/net/a.hpp": "  using namespace core::event;\n"}, 1, {"launcher/net/a.hpp": "using core::A;\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "std::thread t;\n"}, 1, {"launcher/storage/a.cpp": "std::thread t;\n"}),
    ("banned_calls", {"launcher/storage/a.cpp": "thread_ = std::thread(f);\n"}, 1,
     {"launcher/storage/a.cpp": "thread_ = start_thread(f);\n", "common/base/thread.cpp": "std::thread(f);\n"}),
    ("banned_calls", {"common/a.cpp": "std::regex pattern(text);\n"}, 1, {"common/a.cpp": "json::Pattern pattern(text);\n"}),
    ("banned_calls", {"common/a.cpp": "assert(x);\n"}, 1, {"common/a.cpp": "SGD_ASSERT(x);\nstatic_assert(x);\n"}),
    ("banned_calls", {"launcher/net/a.cpp": "say(error.what());\n"}, 1, {"launcher/cli/last_words.cpp": "say(error.what());\n"}),
    ("banned_calls", {"launcher/cli/a.cpp": 'x = json.value("key", 0);\n'}, 1, {"launcher/cli/a.cpp": 'x = result.value();\n'}),
    ("banned_calls", {"launcher/cli/a.cpp": "x = json.get<int>();\n"}, 1, {"launcher/cli/a.cpp": "x = pointer.get();\n"}),
    ("one_cpu", {"common/a.cpp": '#if defined(NDEBUG)\nif (__builtin_cpu_is("intel")) f();\n#endif\n'}, 2,
     {"common/a.cpp": "#if defined(__x86_64__)\n#include <nmmintrin.h>\n#if A\n#else\n_mm_sfence();\n#endif\n#endif\n"}),
    ("one_cpu", {"common/a.cpp": '#if defined(__x86_64__)\n#endif\n__attribute__((target("avx2"))) void f();\n'}, 3,
     {"common/a.cpp": "#if !defined(__x86_64__)\n#define A\n#else\n#define A __attribute__((target_clones(\"avx2\")))\n#endif\n"}),
    ("parsed_streams", {"common/a.cpp": "std::ifstream text(path);\njob = Json::parse(text, nullptr, false);\n"}, 2,
     {"common/a.cpp": "std::string text = f(path);\njob = Json::parse(text, nullptr, false);\n"}),
    ("banned_calls", {"common/a.cpp": "x = {std::istreambuf_iterator<char>(in), {}};\n"}, 1,
     {"launcher/client/a.cpp": "x = {std::istreambuf_iterator<char>(in), {}};\n"}),
    ("banned_calls", {"common/a.cpp": "for (const auto& one : fs::directory_iterator(folder, error)) {\n"}, 1,
     {"common/a.cpp": "for (; !error && one != fs::directory_iterator(); one.increment(error)) {\n"}),
    ("banned_calls", {"common/a.cpp": "::system(x);\n"}, 1, {"common/a.cpp": "file_system(x);\n"}),
    ("file_length", {"common/a.cpp": "\n" * 501}, 501, {"common/a.cpp": "\n" * 500}),
    ("function_length", {"common/a.cpp": "\nint f(int a) {\n" + "g();\n" * 69 + "}\n"}, 2,
     {"common/a.cpp": "int f(int a) {\n" + "g();\n" * 68 + "}\n"}),
    ("function_length", {"common/a.cpp": "A::A(int x)\n    : b_{x}, c_(2) {\n" + "g();\n" * 69 + "}\n"}, 1,
     {"common/a.cpp": "namespace a {\n" + "int f() { return 1; }\n" * 100 + "}\n"}),
    ("function_length", {"test/a.py": "def f():\n" + "    g()\n" * 70}, 1, {"test/a.py": "def f():\n" + "    g()\n" * 69}),
    ("unfinished", {"README.md": "\nTO" + "DO later\n"}, 2, {"README.md": "mkstemp(\"a" + "X" * 6 + "\")\n"}),
    ("machine_paths", {"README.md": "see /ro" + "ot/notes\n"}, 1, {"README.md": "see $HOME/root/notes, network/home\n"}),
    ("pragma_once", {"common/a.hpp": "\n#pragma once\n"}, 1, {"common/a.hpp": HEADER}),
    ("opening_comment", {"common/a.hpp": "#pragma once\n\n#include <map>\n"}, 2, {"common/a.hpp": HEADER}),
    ("folder_readme", {"launcher/net/a.cpp": "", "launcher/README.md": ""}, 1,
     {"launcher/net/a.cpp": "", "launcher/net/README.md": "", "launcher/README.md": ""}),
    ("header_is_used", {"common/a.hpp": HEADER}, 1,
     {"common/a.hpp": HEADER, "common/b.cpp": '#include "common/a.hpp"\n'}),
    ("presets_refuse_warnings", {"CMakePresets.json": '{"configurePresets": [{"name": "a"}]}'}, 1,
     {"CMakePresets.json": '{"configurePresets": [{"name": "b", "hidden": true, "cacheVariables": {"SGD_WERROR": "ON"}},'
                           ' {"name": "a", "inherits": "b"}]}'}),
    ("limits_have_tests", {"common/a.hpp": "\nconstexpr int kThingsMax = 7;\n"}, 2, {"common/a.hpp": "constexpr int kThings = 7;\n"}),
]


class SourceRules(unittest.TestCase):
    """Each rule over the real tree."""

    maxDiff = None
    tree = {}

    @classmethod
    def setUpClass(cls):
        cls.tree = source.load_tree(ROOT)

    def test_tree_is_there(self):
        self.assertGreater(len(self.tree), 40)


class RulesFire(unittest.TestCase):
    """Each rule over a planted violation and over its innocent neighbour."""

    def test_every_rule_has_a_planted_violation(self):
        self.assertEqual({rule.__name__ for rule in rules.ALL}, {case[0] for case in PLANTED})


def _over_tree(rule):
    def test(self):
        found = [str(finding) for finding in rule(self.tree)]
        if found:
            self.fail("\n" + "\n".join(found))

    test.__doc__ = rule.__doc__
    return test


def _planted(name, tree, line, innocent):
    def test(self):
        rule = getattr(rules, name)
        found = rule(tree)
        self.assertEqual([finding.line for finding in found], [line], "\n".join(map(str, found)))
        self.assertEqual([str(finding) for finding in rule(innocent)], [])

    return test


for _rule in rules.ALL:
    setattr(SourceRules, f"test_{_rule.__name__}", _over_tree(_rule))
for _number, _case in enumerate(PLANTED):
    setattr(RulesFire, f"test_{_case[0]}_{_number:02}", _planted(*_case))

if __name__ == "__main__":
    unittest.main()
