"""Reads TensorBoard event files by the formats' own descriptions: TFRecord frames with masked CRC-32C, protobuf's wire format.

A second opinion on what sgd-launch writes that needs no package; `python3 event_files.py FOLDER` prints the same as TensorBoard's
own package reads it, where that is installed.
"""

import json
import os
import struct
import subprocess
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content):
    """Every record of a file; a damaged or cut one is an error."""
    at = 0
    while at < len(content):
        (length, crc) = struct.unpack_from("<QI", content, at)
        assert crc == masked(content[at : at + 8]), f"length at {at}"
        data = content[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(data), f"record at {at}"
        yield data
        at += 16 + length


def fields(message):
    """(number, value) of a protobuf message: int, float bits as bytes, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind)
        size = varint() if size is None else size
        yield key >> 3, message[at : at + size]
        at += size


def events(path):
    """What a file's reports say: {"step", "time", "scalars": {tag: value}, "histograms": {tag: (least, greatest, number)}}; the
    tags about hparams are in "others"."""
    with open(path, "rb") as file:
        content = file.read()
    found = []
    for record in records(content):
        event = {"step": 0, "time": 0.0, "version": "", "scalars": {}, "histograms": {}, "others": []}
        for number, value in fields(record):
            if number == 1:
                event["time"] = struct.unpack("<d", value)[0]
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value.decode()
            elif number == 5:
                for _, one in fields(value):
                    parts = dict(fields(one))
                    tag = parts[1].decode()
                    if 2 in parts:
                        event["scalars"][tag] = struct.unpack("<f", parts[2])[0]
                    elif 5 in parts:
                        histogram = dict(fields(parts[5]))
                        event["histograms"][tag] = tuple(struct.unpack("<d", histogram[key])[0] for key in (1, 2, 3))
                    else:
                        event["others"].append(tag)
        found.append(event)
    return found


def event_file(folder):
    names = [name for name in sorted(os.listdir(folder)) if "tfevents" in name]
    assert len(names) == 1, names
    return os.path.join(folder, names[0])


def as_tensorboard_reads(folder):
    """By TensorBoard's package: {"scalars": {tag: [[step, value], ...]}, "histograms": {tag: [[step, bins], ...]}, "hparams": {...},
    "status": N}."""
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    reader = event_accumulator.EventAccumulator(folder, size_guidance={name: 0 for name in ("scalars", "histograms", "tensors")})
    reader.Reload()
    tags = reader.Tags()
    hparams, status = {}, None
    for tag in reader.summary_metadata:
        if not tag.startswith("_hparams_/"):
            continue
        data = plugin_data_pb2.HParamsPluginData.FromString(reader.SummaryMetadata(tag).plugin_data.content)
        for name, value in data.session_start_info.hparams.items():
            hparams[name] = getattr(value, value.WhichOneof("kind"))
        if data.HasField("session_end_info"):
            status = data.session_end_info.status
    return {"scalars": {tag: [[one.step, one.value] for one in reader.Scalars(tag)] for tag in tags["scalars"]},
            "histograms": {tag: [[one.step, list(one.histogram_value.bucket)] for one in reader.Histograms(tag)]
                           for tag in tags["histograms"]},
            "hparams": hparams, "status": status}


def tensorboard_reads(folder):
    """The same of another process, in which the package is; None where it is not installed."""
    from harness import LIMIT_S, TESTS_PYTHON

    ended = subprocess.run([TESTS_PYTHON, os.path.abspath(__file__), folder], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if "No module named 'tensorboard'" in ended.stderr:
        return None
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


if __name__ == "__main__":
    print(json.dumps(as_tensorboard_reads(sys.argv[1])))
