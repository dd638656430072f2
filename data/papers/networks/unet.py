"""U-Net: O. Ronneberger et al., "U-Net: convolutional networks for biomedical image segmentation", MICCAI 2015.

No convolution pads, so each skip connection is cropped to what the decoder has left: 572 pixels in, 388 out.
"""

from net import Net, Tensor

DEPTH = 4
CLASSES = 2


def double_conv(net: Net, x: Tensor, channels: int) -> Tensor:
    return net.conv_relu(net.conv_relu(x, channels, kernel=3, tag="1"), channels, kernel=3, tag="2")


def encoder(net: Net, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The features at the bottom of the U, and those of the skip connection at each level, from the top down."""
    skips: list[Tensor] = []
    for level in range(DEPTH + 1):
        with net.scope(f"down{level}"):
            if level > 0:
                x = net.max_pool(x, kernel=2, stride=2)
            x = double_conv(net, x, 64 << level)
            if level >= DEPTH - 1:
                x = net.dropout(x)
        skips.append(x)
    return skips.pop(), skips


def decoder(net: Net, x: Tensor, skips: list[Tensor]) -> Tensor:
    for level in reversed(range(DEPTH)):
        with net.scope(f"up{level}"):
            # The topmost up-convolution keeps its 128 channels, unlike the others.
            x = net.relu(net.deconv(x, max(128, x.channels // 2), kernel=2, stride=2), "_deconv")
            x = net.concat([net.crop(skips[level], x.size), x])
            x = double_conv(net, x, 64 << level)
    return x


def unet() -> Net:
    net = Net("U-Net", batch=8)
    x, skips = encoder(net, net.input(1, 572))
    x = decoder(net, x, skips)
    with net.scope("head"):
        net.softmax_ce(net.conv(x, CLASSES, kernel=1))
    return net
