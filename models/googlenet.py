"""GoogLeNet: C. Szegedy et al., "Going deeper with convolutions", CVPR 2015.

This is the usual form in PyTorch: batch norm after every convolution, and 3x3 where the paper has 5x5.
In training it has two auxiliary heads, and forward returns three logits.
"""

import torch
from torch import Tensor, nn

# The channels of each block: 1x1; 3x3 narrowed, 3x3; 5x5 narrowed, 5x5; pool. None is a pooling between blocks.
INCEPTION: tuple[tuple[int, ...] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
AUXILIARY_AFTER = (3, 6)
LOSS_WEIGHTS = (1.0, 0.3, 0.3)


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=0.001), nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, inputs: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        direct, narrow3, out3, narrow5, out5, pool = channels
        self.channels = direct + out3 + out5 + pool
        self.branches = nn.ModuleList([
            conv(inputs, direct),
            nn.Sequential(conv(inputs, narrow3), conv(narrow3, out3, 3)),
            nn.Sequential(conv(inputs, narrow5), conv(narrow5, out5, 3)),
            nn.Sequential(nn.MaxPool2d(3, 1, padding=1, ceil_mode=True), conv(inputs, pool)),
        ])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def auxiliary_head(inputs: int, channels: int, hidden: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4), conv(inputs, channels), nn.Flatten(),
        nn.Linear(16 * channels, hidden), nn.ReLU(inplace=True), nn.Dropout(0.7),
        nn.Linear(hidden, classes),
    )


class GoogLeNet(nn.Module):
    """`divisor` narrows every layer; the paper's network has 1."""

    def __init__(self, divisor: int = 1, classes: int = 1000) -> None:
        super().__init__()
        first, channels = 64 // divisor, 192 // divisor
        self.stem = nn.Sequential(
            conv(3, first, 7, stride=2), nn.MaxPool2d(3, 2, ceil_mode=True),
            conv(first, first), conv(first, channels, 3), nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.trunk = nn.ModuleList()
        self.auxiliary = nn.ModuleList()
        for i, sizes in enumerate(INCEPTION):
            if sizes is None:
                self.trunk.append(nn.MaxPool2d(3 if i == 2 else 2, 2, ceil_mode=True))
                continue
            self.trunk.append(Inception(channels, tuple(size // divisor for size in sizes)))
            channels = self.trunk[-1].channels
            if i in AUXILIARY_AFTER:
                head = auxiliary_head(channels, 128 // divisor, 1024 // divisor, classes)
                self.auxiliary.append(head)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, classes)
        )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        x = self.stem(images)
        logits: list[Tensor] = []
        for i, block in enumerate(self.trunk):
            x = block(x)
            if self.training and i in AUXILIARY_AFTER:
                logits.append(self.auxiliary[len(logits)](x))
        main = self.head(x)
        return (main, *logits) if self.training else main
