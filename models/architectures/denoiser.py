"""Two small networks that learn to take noise out of images, with the noise and the times drawn in forward."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 1000


def noised(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Images with noise of a random strength each, the noise, and the time that stands for the strength."""
    time = torch.randint(STEPS, (images.shape[0],), device=images.device)
    noise = torch.randn_like(images)
    kept = torch.cos(time / STEPS * math.pi / 2)[:, None, None, None]
    return kept * images + (1 - kept.square()).sqrt() * noise, noise, time


def waves(time: Tensor, width: int) -> Tensor:
    rates = torch.exp(-math.log(1e4) * torch.arange(width // 2, device=time.device) / (width // 2))
    angles = time[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.norm_in, self.conv_in = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm_out, self.conv_out = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(width, outputs)
        self.past = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv_in(functional.silu(self.norm_in(x))) + self.time(time)[:, :, None, None]
        return self.past(x) + self.conv_out(functional.dropout(functional.silu(self.norm_out(y)), 0.1, self.training))


class DiffusionUNet(nn.Module):
    """Two resolutions with residual blocks, and attention at the lower one. Returns the loss of the noise it finds."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = ResidualBlock(width, width, width)
        self.smaller = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = ResidualBlock(2 * width, 2 * width, width)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = ResidualBlock(3 * width, width, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x, noise, time = noised(images)
        when = self.embed(waves(time, self.width))
        high = self.down(self.first(x), when)
        low = self.middle(self.smaller(high), when)
        rows = low.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        low = functional.interpolate(rows.transpose(1, 2).reshape_as(low), scale_factor=2.0)
        return functional.mse_loss(self.last(self.up(torch.cat([high, low], 1), when)), noise)


class ModulatedBlock(nn.Module):
    """A transformer block whose norms are scaled and shifted by the time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_a = nn.LayerNorm(width, elementwise_affine=False)
        self.norm_b = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale_a, shift_a, gate_a, scale_b, shift_b, gate_b = self.modulation(time)[:, None].chunk(6, -1)
        y = self.norm_a(x) * (1 + scale_a) + shift_a
        x = x + gate_a * self.attention(y, y, y, need_weights=False)[0]
        return x + gate_b * self.mlp(self.norm_b(x) * (1 + scale_b) + shift_b)


class DiffusionTransformer(nn.Module):
    def __init__(self, width: int = 64, layers: int = 3, patch: int = 4, size: int = 32) -> None:
        super().__init__()
        self.width, self.patch = width, patch
        self.embed = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.first = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(ModulatedBlock(width) for _ in range(layers))
        self.last = nn.Linear(width, 3 * patch * patch)

    def forward(self, images: Tensor) -> Tensor:
        x, noise, time = noised(images)
        when = self.embed(waves(time, self.width))
        rows = self.first(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            rows = block(rows, when)
        found = functional.fold(self.last(rows).transpose(1, 2), images.shape[-2:], self.patch, stride=self.patch)
        return functional.mse_loss(found, noise)
