"""Trains a small network in PyTorch inside a byte budget, and compares it with plain training."""

import torch
from torch import nn

import reprise

torch.manual_seed(0)
layers = [layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(4096, 64), torch.randint(10, (4096,))) for _ in range(4)]

print(reprise.verify(model, batches[0][0], budget="11MiB"))  # the same bits, inside the budget?

model = reprise.compile(model, budget="11MiB", optimizer=optimizer)
for x, target in batches:
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

print(reprise.explain(model))  # what is kept, what is computed again, and at what price
