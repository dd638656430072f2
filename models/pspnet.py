"""PSPNet: H. Zhao et al., "Pyramid scene parsing network", CVPR 2017.

A dilated ResNet-101 with a stem of three convolutions, a pyramid of four pooled views of the last
features, and an auxiliary head on the stage before: forward returns both logits in training.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from .resnet import BLOCKS, EXPANSION, conv_bn, stage

STRIDES = (1, 2, 1, 1)
DILATIONS = (1, 1, 2, 4)
PYRAMID_BINS = (1, 2, 3, 6)
AUXILIARY_WEIGHT = 0.4


def resize(x: Tensor, size: torch.Size) -> Tensor:
    return functional.interpolate(x, size, mode="bilinear", align_corners=True)


class Pyramid(nn.Module):
    """Concatenates the features with their averages over smaller and smaller parts of the image."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        outputs = inputs // len(PYRAMID_BINS)
        # There is no batch norm, because the coarsest view has one pixel and a batch may have one image.
        self.views = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(bins), nn.Conv2d(inputs, outputs, 1), nn.ReLU(inplace=True)
            )
            for bins in PYRAMID_BINS
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, *(resize(view(x), x.shape[-2:]) for view in self.views)], 1)


def head(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        *conv_bn(inputs, hidden, 3), nn.ReLU(inplace=True), nn.Dropout(0.1),
        nn.Conv2d(hidden, classes, 1),
    )


class PspNet(nn.Module):
    """`width` is the width of the ResNet, 64 in the paper."""

    def __init__(self, width: int = 64, classes: int = 17) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *conv_bn(3, width, 3, stride=2), nn.ReLU(inplace=True),
            *conv_bn(width, width, 3), nn.ReLU(inplace=True),
            *conv_bn(width, 2 * width, 3), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        channels = [width << i for i in range(4)]
        inputs = [2 * width, *(EXPANSION * c for c in channels)]
        self.stages = nn.ModuleList(
            stage(inputs[i], channels[i], count, STRIDES[i], DILATIONS[i])
            for i, count in enumerate(BLOCKS[101])
        )
        self.pyramid = Pyramid(inputs[4])
        self.head = head(2 * inputs[4], 8 * width, classes)
        self.auxiliary = head(inputs[3], 4 * width, classes)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = [self.stem(images)]
        for layer in self.stages:
            features.append(layer(features[-1]))
        logits = resize(self.head(self.pyramid(features[-1])), images.shape[-2:])
        if not self.training:
            return logits
        return logits, resize(self.auxiliary(features[-2]), images.shape[-2:])
