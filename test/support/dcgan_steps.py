"""The first steps of worker/examples/dcgan by PyTorch, with one worker's batches, in their order, and its random numbers.

    dcgan_steps.py FOLDER OF IDX FILES, SEED, FEATURES, BATCH SIZE, STEPS

Writes [loss_d, loss_g] of each step as a line of JSON.
"""

import json
import sys

import torch
from torch import nn

BITS = (1 << 64) - 1
LATENT, RATE = 100, 0.0002


def mixed(seed, value):
    """As worker/core/mix_bits.hpp."""
    z = ((seed ^ (value * 0xD6E8FEB86659FD93 & BITS)) + 0x9E3779B97F4A7C15) & BITS
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & BITS
    return z ^ (z >> 31)


def step_seed(seed, place):
    """Of rank 0 in the first pass."""
    return mixed(mixed(mixed(mixed(seed, 0x73746570), 1), place), 0)


def up(into, out, kernel, stride, padding):
    return nn.ConvTranspose2d(into, out, kernel, stride, padding, bias=False)


def down(into, out, kernel, stride, padding):
    return nn.Conv2d(into, out, kernel, stride, padding, bias=False)


def made(features):
    generator = nn.Sequential(up(LATENT, 4 * features, 7, 1, 0), nn.BatchNorm2d(4 * features), nn.ReLU(),
                              up(4 * features, 2 * features, 4, 2, 1), nn.BatchNorm2d(2 * features), nn.ReLU(),
                              up(2 * features, 1, 4, 2, 1), nn.Tanh())
    discriminator = nn.Sequential(down(1, 2 * features, 4, 2, 1), nn.LeakyReLU(0.2),
                                  down(2 * features, 4 * features, 4, 2, 1), nn.BatchNorm2d(4 * features), nn.LeakyReLU(0.2),
                                  down(4 * features, 1, 7, 1, 0), nn.Flatten())
    for network in (generator, discriminator):
        for parameter in network.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)
    return generator, discriminator


def loss_of(output, wanted):
    return nn.functional.binary_cross_entropy_with_logits(output, torch.full_like(output, wanted))


def main():
    folder, seed, features, batch_size, steps = sys.argv[1], *map(int, sys.argv[2:])
    with open(folder + "/train-images-idx3-ubyte", "rb") as file:
        images = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8).reshape(-1, 1, 28, 28).float() / 255
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator, discriminator = made(features)
    generator_step, discriminator_step = (torch.optim.Adam(network.parameters(), RATE, betas=(0.5, 0.999)) for network in (generator, discriminator))
    for step in range(steps):
        torch.manual_seed(step_seed(seed, step * batch_size))
        real = images[step * batch_size : (step + 1) * batch_size] * 2 - 1
        fake = generator(torch.randn(batch_size, LATENT, 1, 1))
        loss_d = loss_of(discriminator(real), 1) + loss_of(discriminator(fake.detach()), 0)
        discriminator_step.zero_grad()
        loss_d.backward()
        discriminator_step.step()
        loss_g = loss_of(discriminator(fake), 1)
        generator_step.zero_grad()
        loss_g.backward()
        generator_step.step()
        print(json.dumps([loss_d.item(), loss_g.item()]), flush=True)


if __name__ == "__main__":
    main()
