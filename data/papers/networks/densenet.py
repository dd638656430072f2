"""DenseNet161: G. Huang et al., "Densely connected convolutional networks", CVPR 2017."""

from net import Net, Tensor

GROWTH = 48
STAGE_LAYERS = [6, 12, 36, 24]


def bn_relu_conv(net: Net, x: Tensor, channels: int, kernel: int, pad: int = 0, tag: str = "") -> Tensor:
    return net.conv(net.relu(net.bn(x, tag), tag), channels, kernel, pad=pad, bias=False, tag=tag)


def dense_layer(net: Net, x: Tensor) -> Tensor:
    """Appends GROWTH channels to all that came before, so the concatenations of a stage form a chain."""
    h = bn_relu_conv(net, x, 4 * GROWTH, kernel=1, tag="1")
    h = bn_relu_conv(net, h, GROWTH, kernel=3, pad=1, tag="2")
    return net.concat([x, h])


def densenet161() -> Net:
    net = Net("DenseNet161", batch=32)
    with net.scope("stem"):
        x = net.conv(net.input(3, 224), 2 * GROWTH, kernel=7, stride=2, pad=3, bias=False)
        x = net.max_pool(net.relu(net.bn(x)), kernel=3, stride=2)
    for stage, layers in enumerate(STAGE_LAYERS, start=1):
        if stage > 1:
            with net.scope(f"transition{stage - 1}"):
                x = net.avg_pool(bn_relu_conv(net, x, x.channels // 2, kernel=1), kernel=2, stride=2)
        for layer in range(layers):
            with net.scope(f"dense{stage}.{layer}"):
                x = dense_layer(net, x)
    with net.scope("head"):
        x = net.avg_pool(net.relu(net.bn(x)), kernel=7, stride=7)
        net.softmax_ce(net.linear(x, 1000))
    return net
