"""Image files of the tests: PNG of bytes, JPEG of flat blocks, and small data sets of them."""

import os
import random
import struct
import zlib


def png_bytes(rows, channels=3):
    """A PNG file; a row is a list of numbers, `channels` for each pixel."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    header = struct.pack(">IIBBBBB", len(rows[0]) // channels, len(rows), 8, 0 if channels == 1 else 2, 0, 0, 0)
    content = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def jpeg_bytes(blocks):
    """A JPEG file of flat squares of 8 x 8 pixels; a row of `blocks` is a list of (red, green, blue)."""
    def segment(marker, content):
        return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content
    bits, before = [], [0, 0, 0]
    for row in blocks:
        for red, green, blue in row:
            colours = (0.299 * red + 0.587 * green + 0.114 * blue, 128 - 0.168736 * red - 0.331264 * green + 0.5 * blue,
                       128 + 0.5 * red - 0.418688 * green - 0.081312 * blue)
            for place, colour in enumerate(colours):
                level = max(-128, min(127, round(colour) - 128))
                change, before[place] = level - before[place], level
                size = abs(change).bit_length()
                # The first number's size in 4 bits, the number, and one bit: nothing else in this block.
                bits.append(f"{size:04b}" + (f"{change if change > 0 else change + 2**size - 1:0{size}b}" if size else "") + "0")
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    coded = bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8)).replace(b"\xff", b"\xff\0")
    frame = struct.pack(">BHHB", 8, 8 * len(blocks), 8 * len(blocks[0]), 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0])
    sizes = bytes([0x00, 0, 0, 0, 12] + [0] * 12 + list(range(12)))
    nothing = bytes([0x10, 1] + [0] * 15 + [0])
    return (b"\xff\xd8" + segment(0xDB, bytes([0] + [8] * 64)) + segment(0xC0, frame) + segment(0xC4, sizes) + segment(0xC4, nothing)
            + segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])) + coded + b"\xff\xd9")


def write_bytes(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def image_folder(folder, counts=(("train", 30), ("val", 10))):
    """Three classes by their colour, JPEG and PNG of several sizes. Returns the data set of a job."""
    chance = random.Random(3)
    for split, count in counts:
        for place, name in enumerate(("blue", "green", "red")):
            for number in range(count):
                def pixel(strongest=place):
                    return tuple(chance.randrange(150, 250) if 2 - channel == strongest else chance.randrange(0, 90) for channel in range(3))
                rows, columns = chance.randrange(1, 4), chance.randrange(1, 4)
                path = os.path.join(folder, split, name, f"{number:03}")
                if number % 2:
                    write_bytes(path + ".jpg", jpeg_bytes([[pixel() for _ in range(columns)] for _ in range(rows)]))
                else:
                    write_bytes(path + ".png", png_bytes([sum((pixel() for _ in range(5 * columns)), ()) for _ in range(6 * rows)]))
    return {"type": "image_folder", "train": os.path.join(folder, "train"), "validation": os.path.join(folder, "val"), "size": [12, 12]}


def image_masks(folder, counts=(("train", 24), ("val", 8)), side=16):
    """A bright square on a dark ground: class 1 on class 0, with a line of 255 around it. Returns the data set of a job."""
    chance = random.Random(4)
    dataset = {"type": "image_masks", "size": [side, side], "ignore": 255}
    for split, key, count in ((*counts[0][:1], "train", counts[0][1]), (*counts[1][:1], "validation", counts[1][1])):
        folders = {kind: os.path.join(folder, split, kind) for kind in ("images", "masks")}
        for number in range(count):
            top, left, size = chance.randrange(1, side - 7), chance.randrange(1, side - 7), 6

            def distance(row, column):  # Below 0: inside of the square.
                return max(top - row, row - top - size + 1, left - column, column - left - size + 1)
            places = [[distance(row, column) for column in range(side)] for row in range(side)]
            image = [sum(([chance.randrange(180, 250) if place <= 0 else chance.randrange(0, 80)] * 3 for place in row), []) for row in places]
            write_bytes(os.path.join(folders["images"], f"{number:03}.png"), png_bytes(image))
            mask = [[255 if place == 0 else int(place < 0) for place in row] for row in places]
            write_bytes(os.path.join(folders["masks"], f"{number:03}.png"), png_bytes(mask, channels=1))
        dataset[key] = folders
    return dataset
