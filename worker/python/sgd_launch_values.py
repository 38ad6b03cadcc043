"""Trees of values as raw leaves and JSON, and back; safetensors files of them. Every value comes back exactly as it was.

Standard library only: torch and numpy are used where the caller has imported them, or has kept their arrays. No pickle.
"""
import array
import collections
import ctypes
import json
import math
import mmap
import os
import struct
import sys
import zlib

PIECE_BYTES = 64 << 20
PAIRS = {"i": dict, "o": collections.OrderedDict, "c": collections.Counter}  # A Counter: milestones of torch's MultiStepLR.
TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


class _Tree:
    """Leaves and the values that refer to them."""

    def only(self, names):
        """Some of the values, and the numbers of the leaves that they have."""
        values = {name: value for name, value in self.values.items() if name in names}
        used, open_ = set(), list(values.values())
        while open_:
            one = open_.pop()
            if isinstance(one, list):
                open_.extend(one)
            elif isinstance(one, dict):
                (kind, inside), = one.items()
                if kind == "x":
                    used.add(inside)
                elif kind != "f":  # Names in a "d" are the caller's, and may be any letter.
                    open_.extend(inside.values() if kind == "d" else inside)
        return values, sorted(used)

    def text(self):
        return json.dumps({"leaves": self.leaves, "values": self.values, "info": self.info}).encode()


class Packed(_Tree):
    """A tree of values as JSON text and leaves of raw bytes. A leaf: [name, kind, type, shape, stride or None, begin, bytes];
    the text has {"x": number of the leaf} in its place. What the text cannot hold exactly is an error that names the path."""

    def __init__(self, values, info):
        """`values`: {name: value}; `info`: plain JSON about it."""
        self.leaves, self.sources, self.bytes = [], [], 0
        self.values, self.info = {name: self.pack(value, name) for name, value in values.items()}, info

    def piece(self, number):
        """The bytes of a leaf."""
        source, size = self.sources[number], self.leaves[number][6]
        if hasattr(source, "cpu"):
            host = source.cpu()
            return bytes((ctypes.c_char * size).from_address(host.data_ptr()))
        return (ctypes.c_char * size).from_address(source[0]) if isinstance(source, tuple) else source

    def add(self, name, kind, dtype, shape, stride, size, source):
        self.leaves.append([name, kind, dtype, shape, stride, self.bytes, size])
        self.sources.append(source)
        self.bytes += -(-size // 64) * 64
        return {"x": len(self.leaves) - 1}

    def pack(self, value, path):
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"f": struct.pack(">d", value).hex()}
        if kind is list:
            return [self.pack(one, f"{path}.{at}") for at, one in enumerate(value)]
        if kind is tuple:
            return {"t": [self.pack(one, f"{path}.{at}") for at, one in enumerate(value)]}
        if kind is dict and all(type(key) is str for key in value):
            return {"d": {key: self.pack(one, f"{path}.{key}") for key, one in value.items()}}
        if kind in PAIRS.values():
            letter = next(letter for letter, one in PAIRS.items() if one is kind)
            return {letter: [[self.pack(key, f"a key of {path}"), self.pack(one, f"{path}.{key}")] for key, one in value.items()]}
        if kind in (bytes, bytearray):
            return self.add(path, kind.__name__, "uint8", [len(value)], None, len(value), value)
        if kind is array.array:
            return self.add(path, "array", value.typecode, [len(value)], None, len(value) * value.itemsize,
                            memoryview(value).cast("B"))
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            return self.pack_tensor(torch, value, path)
        what = f"{kind.__module__}.{kind.__qualname__}"
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            if (kind is numpy.ndarray or isinstance(value, numpy.generic)) and _is_told_whole(numpy, value.dtype):
                flat = numpy.ascontiguousarray(value)
                name = "ndarray" if kind is numpy.ndarray else "scalar"
                source = flat.ctypes.data, flat
                return self.add(path, name, flat.dtype.str, list(value.shape), None, flat.nbytes, source)
            what += f" of dtype {value.dtype}"
        raise TypeError(f"sgd_launch: {path} is a {what}, which cannot be kept; give tensors, plain arrays, bytes, "
                        "numbers, text, None, lists, tuples and dicts of these, or an object with state_dict")

    def pack_tensor(self, torch, value, path):
        odd = hasattr(value, "__tensor_flatten__") or value.layout is not torch.strided or value.is_meta or value.is_quantized
        if odd:
            raise TypeError(f"sgd_launch: {path} is a {type(value).__name__} of layout {value.layout} on {value.device}, which "
                            "cannot be kept; give a plain dense tensor, of a distributed one its local part")
        value = value.detach().resolve_conj().resolve_neg()
        stride = None
        if not value.is_contiguous():
            if _is_dense(value):
                stride = list(value.stride())
            else:
                value = value.contiguous()
        source = (value.data_ptr(), value) if value.device.type == "cpu" else value
        return self.add(path, "tensor", str(value.dtype)[6:], list(value.shape), stride,
                        value.numel() * value.element_size(), source)


def _is_told_whole(numpy, dtype):
    """Whether its short name tells all of it: that of a type with fields, or of another package, is a size only."""
    return not dtype.hasobject and numpy.dtype(dtype.str) == dtype


def _is_dense(tensor):
    """Whether its elements fill their memory in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class Record(_Tree):
    """What Packed has made, to be read: the text's content and the memory in which the leaves lie."""

    def __init__(self, content, base, size, keep):
        self.leaves, self.values, self.info = content["leaves"], content["values"], content["info"]
        self.base, self.size, self.keep = base, size, keep

    def unpack(self, value):
        if isinstance(value, list):
            return [self.unpack(one) for one in value]
        if not isinstance(value, dict):
            return value
        (kind, inside), = value.items()
        if kind == "f":
            return struct.unpack(">d", bytes.fromhex(inside))[0]
        if kind == "t":
            return tuple(self.unpack(one) for one in inside)
        if kind == "d":
            return {key: self.unpack(one) for key, one in inside.items()}
        if kind in PAIRS:
            return PAIRS[kind]({self.unpack(key): self.unpack(one) for key, one in inside})
        return self.leaf(*self.leaves[inside])

    def leaf(self, name, kind, dtype, shape, stride, begin, size):
        if begin < 0 or size < 0 or begin + size > self.size:
            raise ValueError(f"sgd_launch: {name} lies outside its data: the copy is damaged")
        if kind == "tensor":
            torch = sys.modules.get("torch") or __import__("torch")
            dtype, host = getattr(torch, dtype), "cpu"  # Said, since set_default_device() may name another one.
            made = torch.empty(shape, dtype=dtype, device=host) if stride is None else torch.empty_strided(shape, stride, dtype=dtype, device=host)
            if made.numel() * made.element_size() != size:
                raise ValueError(f"sgd_launch: {name} has {size} bytes, which do not fit {shape}: the copy is damaged")
            ctypes.memmove(made.data_ptr(), self.base + begin, size)
            return made
        data = ctypes.string_at(self.base + begin, size)
        if kind in ("ndarray", "scalar"):
            numpy = sys.modules.get("numpy") or __import__("numpy")
            made = numpy.frombuffer(data, dtype=dtype).reshape(shape).copy()
            return made if kind == "ndarray" else made[()]
        return array.array(dtype, data) if kind == "array" else bytearray(data) if kind == "bytearray" else data

    def piece(self, number):
        _, _, _, _, _, begin, size = self.leaves[number]
        return (ctypes.c_char * size).from_address(self.base + begin)


def as_before(value, present):
    """`value`, which was just unpacked, with its tensors as `present` has them at the same places: on their
    devices, and requiring a gradient where they do. A leaf that does takes the numbers, since an optimizer may hold it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and isinstance(present, torch.Tensor):
        has_grad = present.requires_grad and (value.is_floating_point() or value.is_complex())
        is_alike = (value.shape, value.dtype) == (present.shape, present.dtype) and _is_dense(present)
        if has_grad and present.is_leaf and is_alike:
            with torch.no_grad():
                return present.copy_(value)
        return value.to(present.device).requires_grad_(has_grad)
    if isinstance(value, dict) and isinstance(present, dict):
        for key in value:
            if key in present:
                value[key] = as_before(value[key], present[key])
    elif isinstance(value, (list, tuple)) and isinstance(present, (list, tuple)):
        kept = [as_before(one, before) for one, before in zip(value, present)]
        return type(value)([*kept, *value[len(kept):]])
    return value


def write_file(path, tree, names=None, sync=True):
    """One safetensors file: raw leaves, and the text in its header's metadata. Whole or not there. (bytes, CRC-32)"""
    values, used = tree.only(tree.values if names is None else names)
    header, leaves, begin, taken = {}, [None] * len(tree.leaves), 0, set()
    for number in used:
        name, kind, dtype, shape, stride, _, size = tree.leaves[number]
        leaves[number] = [name, kind, dtype, shape, stride, begin, size]
        while name in taken or name == "__metadata__":
            name += "_"
        taken.add(name)
        # Another program sees the memory's order: of a permuted tensor, the permuted shape.
        order = sorted(range(len(shape)), key=lambda at: -stride[at]) if stride else range(len(shape))
        known = kind == "tensor" and dtype in TYPES
        header[name] = {"dtype": TYPES[dtype] if known else "U8", "shape": [shape[at] for at in order] if known else [size],
                        "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps({"leaves": leaves, "values": values, "info": tree.info})
    head = json.dumps({"__metadata__": {"sgd_launch": text}, **header}).encode()
    head += b" " * (-len(head) % 8)
    pieces = [struct.pack("<Q", len(head)) + head]
    pieces += [tree.piece(number) for number in used if tree.leaves[number][6]]
    temporary, crc, size = f"{path}.{os.getpid()}.tmp", 0, 0
    with open(temporary, "wb") as file:
        for piece in map(memoryview, pieces):
            for at in range(0, piece.nbytes, PIECE_BYTES):
                part = piece.cast("B")[at:at + PIECE_BYTES]
                crc, size = zlib.crc32(part, crc), size + file.write(part)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.rename(temporary, path)
    return size, crc


def sync(path):
    """Of a file or a folder: the disk has it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path):
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    length, = struct.unpack_from("<Q", mapped, 0)
    if length > len(mapped) - 8:
        raise ValueError(f"sgd_launch: {path} is cut off")
    content = json.loads(json.loads(mapped[8:8 + length])["__metadata__"]["sgd_launch"])
    view = (ctypes.c_char * len(mapped)).from_buffer(mapped)
    return Record(content, ctypes.addressof(view) + 8 + length, len(mapped) - 8 - length, view)


def verify(folder):
    """The manifest of a checkpoint whose files are all as it says; ValueError or OSError else."""
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    for entry in manifest["files"]:
        path, crc = os.path.join(folder, entry["name"]), 0
        with open(path, "rb") as file:
            for part in iter(lambda: file.read(PIECE_BYTES), b""):
                crc = zlib.crc32(part, crc)
        if os.path.getsize(path) != entry["bytes"] or f"{crc:08x}" != entry.get("crc32"):
            raise ValueError(f"{path} is damaged: its size or its CRC-32 is another one than its manifest says")
    return manifest
