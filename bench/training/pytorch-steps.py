"""Forward and backward of bench/training/compute.ts's programs in PyTorch, one thread, in ms of processor time.

Reads how many turns to take as its argument; prints one line of JSON: [[name, median, best], ...].
"""

import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.policy, self.value = nn.Linear(256, 4), nn.Linear(256, 1)

    def loss(self, observation, action, target):
        rows = self.trunk(observation)
        return F.cross_entropy(self.policy(rows), action) + F.mse_loss(self.value(rows), target)


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, stream, cosine, sine):
        batch, length, width = stream.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.first(stream)).chunk(3, -1))
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        stream = stream + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        normed = self.second(stream)
        return stream + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x, cosine, sine):
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=512, context=128, width=256, layers=4, heads=4, inner=688):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, 1e-5), nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        speeds = torch.exp(-math.log(10_000) * torch.arange(half) / half)
        angles = torch.arange(context)[:, None] * speeds[None]
        self.cosine, self.sine = angles.cos(), angles.sin()

    def loss(self, tokens, targets):
        stream = self.embed(tokens)
        for block in self.blocks:
            stream = block(stream, self.cosine, self.sine)
        return F.cross_entropy(self.head(self.norm(stream)).flatten(0, 1), targets.flatten())


def measure(name, model, data, turns, warm):
    times = []
    for turn in range(turns + warm):
        model.zero_grad(set_to_none=True)
        begin = time.process_time()
        model.loss(*data).backward()
        if turn >= warm:
            times.append((time.process_time() - begin) * 1e3)
    count = sum(parameter.numel() for parameter in model.parameters())
    return [name, count, statistics.median(times), min(times)]


def main():
    figures = []
    for batch, turns, warm in ((64, 200, 1000), (1024, 40, 100)):
        data = (torch.randn(batch, 8), torch.randint(4, (batch,)), torch.randn(batch, 1))
        figures.append(measure(f"MLP 8-256-256-(4,1), B={batch}", Mlp(), data, turns, warm))
    data = (torch.randint(4, (4, 128)), torch.randint(4, (4, 128)))
    figures.append(measure("language model, 4 x 128 tokens", LanguageModel(), data, 10, 3))
    print(json.dumps(figures))


main()
