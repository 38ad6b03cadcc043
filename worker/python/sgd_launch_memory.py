"""States in memory that outlives ranks: two slots a rank in a memory file of the run's keeper, one file a node.

A slot's stamp is cleared first and set last, so a rank that is killed leaves no half-written slot that counts. A commit counts
when all ranks hold the one of the same call; a rank never writes over the newest one that all ranks of its node hold, and
leaves copies out while ranks behind it may come to its newest one.
"""
import collections
import ctypes
import json
import mmap
import os
import struct
import sys
import zlib

from sgd_launch_values import Record

AREA_BYTES = 1 << 40  # Room of one slot in the sparse memory file: addresses, not memory.
PIECE_BYTES = 64 << 20  # A signal makes the system take back what one call has allocated.
SLOT = struct.Struct("<8s4I2Qq2QQI")
MAGIC = b"SGDSTAT1"
HEADER_BYTES = 4096


class Header(collections.namedtuple("Header", "magic local rank world local_world generation call step interval "
                                               "data_bytes text_bytes text_crc")):
    @property
    def key(self):
        return self.generation, self.call

    @property
    def record(self):
        """As the ranks tell each other of it (choose() of sgd_launch_plan)."""
        return [self.local, self.rank, self.world, self.local_world, self.generation, self.call, self.step, self.interval]


class Memory:
    """One rank's page and two slots in the node's memory file; of other ranks of the node, what their slots hold.

    A rank has four areas of a sparse file: a page, slot 0, slot 1. The page has the call that the rank has come to, and in that of
    local rank 0 the call that is being saved, whose slots all ranks of the node leave as they are. A slot: stamp (8 bytes),
    header, from 4096 on the leaves, then the text. The stamp is one store: sequence and the header's CRC-32."""

    def __init__(self, fd, local, local_world):
        self.fd, self.local, self.local_world = fd, local, local_world
        self.maps = [None, None]
        self.restored = None  # The commit that this generation has gone on from.
        self.former = None  # The newest one of the node then, which another node may lack.
        os.posix_fallocate(fd, self.area(local, 0), HEADER_BYTES)
        self.page = mmap.mmap(fd, HEADER_BYTES, offset=self.area(local, 0))
        self.live = ctypes.c_uint64.from_buffer(self.page)
        if local == 0:
            self.pin(0)  # Of a rank before, which was killed while it was saving.
        self.sequence = max(self.stamp(slot) >> 32 for slot in (0, 1))

    @staticmethod
    def area(local, number):
        return (local * 4 + number) * AREA_BYTES

    def records(self, locals_max=4096):
        """Of all ranks that have ever written here."""
        found = []
        for local in range(locals_max):
            if os.lseek(self.fd, 0, os.SEEK_END) <= self.area(local, 0):
                break
            found += [header.record for _, header in self.headers(local).values()]
        return found

    def live_of(self, local):
        data = os.pread(self.fd, 8, self.area(local, 0))
        return struct.unpack("=Q", data)[0] if len(data) == 8 else 0

    def stamp(self, slot):
        return int.from_bytes(os.pread(self.fd, 8, self.area(self.local, 1 + slot)), sys.byteorder)

    def header(self, local, slot):
        """What the slot holds; None where it is empty, or being written."""
        data = os.pread(self.fd, 8 + SLOT.size, self.area(local, 1 + slot))
        if len(data) < 8 + SLOT.size or struct.unpack_from("=Q", data)[0] & 0xffffffff != zlib.crc32(data[8:]):
            return None
        header = Header._make(SLOT.unpack_from(data, 8))
        return header if header.magic == MAGIC and struct.unpack_from("=Q", data)[0] >> 32 else None

    def headers(self, local):
        return {header.key: (slot, header) for slot in (0, 1) for header in [self.header(local, slot)] if header}

    def held(self, local, key):
        """Slot and header of a commit."""
        found = self.headers(local).get(key)
        if found is None:
            raise ValueError(f"sgd_launch: local rank {local} has written over its copy in memory of call {key[1]} while it was read")
        return found

    def common(self):
        """The newest commit that all ranks of the node hold, which must stay; None where there is none."""
        keys = set.intersection(*(set(self.headers(local)) for local in range(self.local_world)))
        return max(keys, default=None)

    def pin(self, call):
        """By local rank 0, before any rank can have made the next but one commit; 0: none is pinned."""
        ctypes.c_uint64.from_buffer(self.page, 8).value = call

    def free_slot(self):
        """The older one of those that may be written: not the one of the common commit, nor one that is being saved. None:
        neither may."""
        common = self.common()
        if common in (None, self.former):
            common = self.restored
        pinned, = struct.unpack("=Q", os.pread(self.fd, 16, self.area(0, 0))[8:] or bytes(8))
        keys = {slot: key for key, (slot, _) in self.headers(self.local).items()}
        free = [slot for slot in (0, 1) if slot not in keys or (keys[slot] != common and keys[slot][1] != pinned)]
        return min(free, key=lambda slot: keys.get(slot, (-1, -1)), default=None)

    def is_one_awaited(self, key):
        """Whether the newest commit of this generation that a rank of the node holds may yet come to be held by all, and is not `key`,
        to which this rank has come: a rank that is ahead would write over it again and again, and none would ever be common."""
        held = [self.headers(local) for local in range(self.local_world)]
        newest = max((one for keys in held for one in keys if one[0] == key[0]), default=key)
        lacking = [local for local, keys in enumerate(held) if newest not in keys]
        return newest != key and lacking != [] and all(self.live_of(local) <= newest[1] for local in lacking)

    def room(self, slot, size):
        """Maps so many bytes of the slot, which has their memory from then on: OSError where there is none."""
        if self.maps[slot] is not None and len(self.maps[slot]) >= size:
            return self.maps[slot]
        size = -(-(size + size // 16) // mmap.PAGESIZE) * mmap.PAGESIZE
        begin = self.area(self.local, 1 + slot)
        for at in range(0, size, PIECE_BYTES):
            os.posix_fallocate(self.fd, begin + at, min(PIECE_BYTES, size - at))
        self.maps[slot] = mmap.mmap(self.fd, size, offset=begin)
        return self.maps[slot]

    def write(self, slot, packed, generation, interval):
        """Copies all leaves, and stamps the slot."""
        info, text = packed.info, packed.text()
        data_end = HEADER_BYTES + packed.bytes
        mapped = self.room(slot, data_end + len(text))
        stamp = ctypes.c_uint64.from_buffer(mapped)
        stamp.value = 0
        base = ctypes.addressof(stamp)
        for leaf, source in zip(packed.leaves, packed.sources):
            at, size = HEADER_BYTES + leaf[5], leaf[6]
            if isinstance(source, tuple):
                ctypes.memmove(base + at, source[0], size)
            elif isinstance(source, (bytes, bytearray, memoryview)):
                mapped[at:at + size] = source
            elif size:
                _copy_from_device(source, mapped, at, size)
        mapped[data_end:data_end + len(text)] = text
        body = SLOT.pack(*Header(MAGIC, self.local, info["rank"], info["world"], self.local_world, generation, info["call"],
                                 info["step"], interval, packed.bytes, len(text), zlib.crc32(text)))
        mapped[8:8 + len(body)] = body
        self.sequence += 1
        stamp.value = (self.sequence & 0xffffffff or 1) << 32 | zlib.crc32(body)

    def read(self, local, key):
        """The commit as a Record of the mapped slot: what is not copied out is gone with the next but one commit."""
        slot, header = self.held(local, key)
        size = HEADER_BYTES + header.data_bytes + header.text_bytes
        mapped = mmap.mmap(self.fd, size, offset=self.area(local, 1 + slot))
        text = mapped[HEADER_BYTES + header.data_bytes:]
        if zlib.crc32(text) != header.text_crc:
            raise ValueError(f"sgd_launch: the copy in memory of call {header.call} is damaged")
        view = (ctypes.c_char * size).from_buffer(mapped)
        return Record(json.loads(text), ctypes.addressof(view) + HEADER_BYTES, header.data_bytes, view)


def _copy_from_device(tensor, mapped, at, size):
    """Waits until it is there: a copy whose end only a later call saw would count for nobody where that call never comes. On the
    stream of the tensor's own device: one of another device would take some hundred MB there."""
    torch = sys.modules["torch"]
    if tensor.device.type == "cuda":
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        torch.frombuffer(mapped, dtype=torch.uint8, count=size, offset=at).copy_(flat)
    else:
        host = tensor.cpu()
        ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(mapped, at)), host.data_ptr(), size)
