"""What Python ranks keep comes back exactly, from memory and from files. Without torch; standard library only."""
import array
import collections
import math
import os
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python"))
from sgd_launch_memory import Memory
from sgd_launch_values import Packed, read_file, write_file

INFO = {"call": 7, "step": 5, "epoch": 1, "world": 1, "rank": 0}
VALUES = {
    "none": None, "yes": True, "small": -3, "big": 1 << 80, "text": "ä\ud800\"{\n", "empty": "", "raw": b"\0\xff" * 100, "no_bytes": b"",
    "row": array.array("d", [0.1, math.inf, -0.0]), "room": bytearray(b"abc"), "pair": (1, (2.5, "x"), ()), "list": [[], {}, [None]],
    "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308], "by_number": {0: "a", 1: {"x": 1}, (1, 2): "t", None: 3, "1": 4},
    "counted": collections.Counter([3, 5, 5]), "ordered": collections.OrderedDict([("b", 1), ("a", {"x": 2, "d": 3})]), "tags": {"x": 0, "t": [1], "i": {}, "f": "00"},
}


def same(one, other):
    """Equal in type, value, order and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and getattr(one, "typecode", 0) == getattr(other, "typecode", 0)


class Values(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def unpacked(self, record):
        return {name: record.unpack(value) for name, value in record.values.items()}

    def test_memory(self):
        memory = Memory(os.memfd_create("memory"), 0, 1)
        memory.write(memory.free_slot(), Packed(VALUES, INFO), 1, 1)
        self.assertTrue(same(self.unpacked(memory.read(0, (1, 7))), VALUES))

    def test_file(self):
        path = os.path.join(self.folder.name, "f.safetensors")
        write_file(path, Packed(VALUES, INFO))
        self.assertTrue(same(self.unpacked(read_file(path)), VALUES))
        self.assertEqual(os.listdir(self.folder.name), ["f.safetensors"])

    def test_not_a_number_keeps_its_bits(self):
        odd = struct.unpack("d", b"\x01\0\0\0\0\0\xf8\xff")[0]
        memory = Memory(os.memfd_create("memory"), 0, 1)
        memory.write(0, Packed({"a": [odd]}, INFO), 1, 1)
        record = memory.read(0, (1, 7))
        self.assertEqual(struct.pack("d", record.unpack(record.values["a"])[0]), b"\x01\0\0\0\0\0\xf8\xff")

    def test_what_cannot_be_kept_is_named_by_its_path(self):
        for value, kind in ((object(), "object"), ({1, 2}, "set"), (lambda: 0, "function"), (1j, "complex")):
            with self.assertRaisesRegex(TypeError, rf"a\.deep\.1 is a .*{kind}"):
                Packed({"a": {"deep": [0, value]}}, INFO)

    def test_arrays_of_numpy_come_back_or_are_refused(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        values = {"matrix": numpy.arange(6, dtype=">i2").reshape(2, 3).T, "none": numpy.zeros((0, 3)),
                  "one": numpy.float32(0.1), "text": numpy.array(["a", ""]), "no_text": numpy.str_(""),
                  "when": numpy.array("2024-02-29", "M8[D]"), "raw": numpy.array(b"\0\1\2", "V3"),
                  "zero_dim": numpy.array(3.5)}
        path = os.path.join(self.folder.name, "f.safetensors")
        write_file(path, Packed(values, INFO))
        for name, again in self.unpacked(read_file(path)).items():
            kept = values[name]
            self.assertEqual((type(again), again.dtype, again.shape), (type(kept), kept.dtype, kept.shape), name)
            self.assertEqual(again.tobytes(), kept.tobytes(), name)
        fields = numpy.zeros(2, [("at", "f4"), ("count", "i8")])
        for value, kind in ((fields, "ndarray of dtype .*count"), (fields[0], "void of dtype .*count"),
                            (fields.view(numpy.recarray), "recarray"), (numpy.array([{}]), "ndarray of dtype object"),
                            (numpy.ma.masked_array([1.0, 2.0], [True, False]), "MaskedArray")):
            with self.assertRaisesRegex(TypeError, rf"a\.deep\.1 is a numpy.*{kind}"):
                Packed({"a": {"deep": [0, value]}}, INFO)

    def test_some_values_of_a_file(self):
        path = os.path.join(self.folder.name, "f.safetensors")
        write_file(path, Packed(VALUES, INFO), {"raw", "pair"})
        self.assertTrue(same(self.unpacked(read_file(path)), {name: VALUES[name] for name in ("raw", "pair")}))

    def test_a_dict_may_have_any_letter_as_its_only_key(self):
        """Beside the letters that the text itself has for kinds of values."""
        inside = (0.5, math.inf, b"leaf", [b"other"], "text", {"x": {"x": 3}}, (1,))
        values = {f"{letter}{at}": {letter: value} for letter in "xftdioc" for at, value in enumerate(inside)}
        values.update(deep=[({"x": {"x": b"deep"}}, math.inf)], keys={(b"key", "x"): {"x": 1}}, last={"x": 1},
                      ordered=collections.OrderedDict(x=collections.OrderedDict(x=b"o")), before=b"not asked for")
        path, packed = os.path.join(self.folder.name, "f.safetensors"), Packed(values, INFO)
        for names in (set(values), *({name} for name in values)):
            write_file(path, packed, names)
            asked = {name: value for name, value in values.items() if name in names}
            self.assertTrue(same(self.unpacked(read_file(path)), asked), names)
        self.assertEqual(packed.only({"last"})[1], [])  # No leaf is written that nothing refers to.
        self.assertEqual(packed.only({"before"})[1], [len(packed.leaves) - 1])

    def test_a_file_that_is_cut_off_is_refused(self):
        path = os.path.join(self.folder.name, "f.safetensors")
        write_file(path, Packed({"raw": b"x" * 5000}, INFO))
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 100)
        record = read_file(path)
        with self.assertRaisesRegex(ValueError, "raw lies outside"):
            self.unpacked(record)

    def test_a_file_is_read_by_safetensors(self):
        try:
            import numpy
            from safetensors.numpy import load_file
        except ImportError:
            self.skipTest("safetensors and numpy are not installed")
        path = os.path.join(self.folder.name, "f.safetensors")
        values = {**VALUES, "n": {"w": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "none": numpy.zeros((0, 3))}}
        write_file(path, Packed(values, INFO))
        read = load_file(path)
        self.assertEqual(bytes(read["raw"]), VALUES["raw"])
        self.assertEqual(bytes(read["n.w"]), values["n"]["w"].tobytes())
        again = self.unpacked(read_file(path))["n"]
        self.assertTrue(numpy.array_equal(again["w"], values["n"]["w"]) and again["none"].shape == (0, 3))


if __name__ == "__main__":
    unittest.main()
