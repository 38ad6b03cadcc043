"""PyTorch's side of scripts/bench loader: a DataLoader over images in memory, with our transforms written in torch operations.

    torch_loader.py FILE WORKERS EPOCHS    FILE: records of CIFAR-10's binary format

Prints a JSON line: samples/s of each epoch; the first, in which workers start, is left out.
"""

import json
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 128
PADDING = 4
HOLE = 8
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
DEVIATION = torch.tensor([0.2023, 0.1994, 0.201]).view(3, 1, 1)


class Images(Dataset):
    """Crop, flip, normalize, cutout: for each no more than the operations that it needs."""

    def __init__(self, path):
        records = numpy.fromfile(path, dtype=numpy.uint8).reshape(-1, 3073)
        self.labels = torch.from_numpy(records[:, 0].astype(numpy.int64))
        self.images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        chance = torch.randint(0, 2**31, (5,)).tolist()
        image = torch.nn.functional.pad(self.images[index], (PADDING,) * 4)
        top, left = chance[0] % (2 * PADDING + 1), chance[1] % (2 * PADDING + 1)
        image = image[:, top : top + 32, left : left + 32]
        if chance[2] % 2:
            image = image.flip(2)
        image = image.float().div_(255).sub_(MEAN).div_(DEVIATION)
        row, column = chance[3] % 32, chance[4] % 32
        image[:, max(0, row - HOLE // 2) : row + HOLE // 2, max(0, column - HOLE // 2) : column + HOLE // 2] = 0
        return image, self.labels[index]


def main():
    path, workers, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    images = Images(path)
    loader = DataLoader(images, batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    rates = []
    for epoch in range(epochs + 1):
        begin = time.perf_counter()
        total = 0.0
        for batch, _ in loader:
            total += batch[0, 0, 0, 0].item()
        rates.append(len(images) / (time.perf_counter() - begin))
    print(json.dumps({"samples_per_s": rates[1:], "sum": total}))


if __name__ == "__main__":
    main()
