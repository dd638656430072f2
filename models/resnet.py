"""ResNet: K. He et al., "Deep residual learning for image recognition", CVPR 2016.

Its bottleneck blocks have their stride in the 3x3 convolution and apply ReLU in place, as is usual in PyTorch.
"""

from torch import Tensor, nn

EXPANSION = 4
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    """A convolution that keeps the size, except for its stride, followed by batch norm."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """Narrows with 1x1, works in 3x3, widens with 1x1, and adds the input."""

    def __init__(self, inputs: int, channels: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        outputs = EXPANSION * channels
        self.narrow = conv_bn(inputs, channels, 1)
        self.work = conv_bn(channels, channels, 3, stride, dilation)
        self.widen = conv_bn(channels, outputs, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.narrow(x))
        y = self.relu(self.work(y))
        y = self.widen(y)
        y += self.shortcut(x)
        return self.relu(y)


def stage(
    inputs: int, channels: int, count: int, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    outputs = EXPANSION * channels
    first = Bottleneck(inputs, channels, stride, dilation)
    rest = (Bottleneck(outputs, channels, 1, dilation) for _ in range(count - 1))
    return nn.Sequential(first, *rest)


class ResNet(nn.Module):
    """`width` is the number of channels after the stem, 64 in the paper."""

    def __init__(self, depth: int, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *conv_bn(3, width, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
        )
        channels = [width << i for i in range(4)]
        inputs = [width, *(EXPANSION * c for c in channels)]
        self.stages = nn.Sequential(
            *(stage(inputs[i], channels[i], count, stride=1 if i == 0 else 2)
              for i, count in enumerate(BLOCKS[depth]))
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images))
        return self.classifier(self.pool(x).flatten(1))
