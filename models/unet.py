"""U-Net: O. Ronneberger et al., "U-Net: convolutional networks for biomedical image segmentation",
MICCAI 2015.

No convolution pads, so each skip connection is cropped to what the decoder has left: 572 pixels in,
388 out.
"""

import torch
from torch import Tensor, nn

DEPTH = 4


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3), nn.ReLU(inplace=True),
    )


def crop(x: Tensor, size: int) -> Tensor:
    """The middle of `x`, as a view."""
    begin = (x.shape[-1] - size) // 2
    return x[..., begin:begin + size, begin:begin + size]


class UNet(nn.Module):
    """`width` is the number of channels at the top, 64 in the paper. The two lowest levels have dropout."""

    def __init__(self, width: int = 64, inputs: int = 1, classes: int = 2) -> None:
        super().__init__()
        channels = [width << level for level in range(DEPTH + 1)]
        steps = zip([inputs, *channels[:-1]], channels, strict=True)
        self.down = nn.ModuleList(double_conv(above, below) for above, below in steps)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in channels[:-1])
        self.merge = nn.ModuleList(double_conv(2 * c, c) for c in channels[:-1])
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x, skips = images, []
        for level, layer in enumerate(self.down):
            x = layer(x if level == 0 else self.pool(x))
            if level >= DEPTH - 1:
                x = self.dropout(x)
            skips.append(x)
        for level in reversed(range(DEPTH)):
            x = self.up[level](x)
            x = self.merge[level](torch.cat([crop(skips[level], x.shape[-1]), x], 1))
        return self.classifier(x)
