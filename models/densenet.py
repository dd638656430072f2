"""DenseNet-161: G. Huang et al., "Densely connected convolutional networks", CVPR 2017.

Each layer reads the concatenation of all layers before it in its block, which plain training copies
again and again.
"""

import torch
from torch import Tensor, nn

BLOCKS = (6, 12, 36, 24)
BOTTLENECK = 4


def bn_relu(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        narrow = BOTTLENECK * growth
        self.layers = nn.Sequential(
            *bn_relu(inputs), nn.Conv2d(inputs, narrow, 1, bias=False),
            *bn_relu(narrow), nn.Conv2d(narrow, growth, 3, padding=1, bias=False),
        )

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.layers(torch.cat(features, 1))


class DenseBlock(nn.Module):
    def __init__(self, inputs: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + i * growth, growth) for i in range(count))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features = [*features, layer(features)]  # a new list: a checkpoint of the layer keeps the one it got
        return torch.cat(features, 1)


def transition(inputs: int) -> nn.Sequential:
    """Halves the channels and the size."""
    conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)
    return nn.Sequential(*bn_relu(inputs), conv, nn.AvgPool2d(2))


class DenseNet161(nn.Module):
    """`growth` is the number of channels that each layer adds, 48 in the paper. The stem has twice as many."""

    def __init__(self, growth: int = 48, classes: int = 1000) -> None:
        super().__init__()
        channels = 2 * growth
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False), *bn_relu(channels),
            nn.MaxPool2d(3, 2, padding=1),
        ]
        for i, count in enumerate(BLOCKS):
            layers.append(DenseBlock(channels, growth, count))
            channels += count * growth
            if i + 1 < len(BLOCKS):
                layers.append(transition(channels))
                channels //= 2
        self.features = nn.Sequential(*layers, *bn_relu(channels), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).flatten(1))
