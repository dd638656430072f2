"""The bottleneck block that ResNet and PSPNet are made of."""

from net import Net, Tensor

STAGE_CHANNELS = [64, 128, 256, 512]
EXPANSION = 4


def conv_bn(net: Net, x: Tensor, channels: int, kernel: int, tag: str = "", **geometry: int) -> Tensor:
    return net.bn(net.conv(x, channels, kernel, bias=False, tag=tag, **geometry), tag)


def conv_bn_relu(net: Net, x: Tensor, channels: int, kernel: int, tag: str = "", **geometry: int) -> Tensor:
    return net.relu(conv_bn(net, x, channels, kernel, tag, **geometry), tag)


def bottleneck(net: Net, x: Tensor, channels: int, strides: tuple[int, int] = (1, 1), dilation: int = 1) -> Tensor:
    """Narrows with 1x1, works in 3x3, widens with 1x1, and adds the input. `strides` are those of the first two."""
    first, second = strides
    out_channels = EXPANSION * channels
    h = conv_bn_relu(net, x, channels, kernel=1, stride=first, tag="1")
    h = conv_bn_relu(net, h, channels, kernel=3, stride=second, pad=dilation, dilation=dilation, tag="2")
    h = conv_bn(net, h, out_channels, kernel=1, tag="3")
    if x.channels != out_channels:
        x = conv_bn(net, x, out_channels, kernel=1, stride=first * second, tag="_shortcut")
    return net.relu(net.add(h, x), "3")
