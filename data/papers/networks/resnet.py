"""ResNet50 and ResNet152: K. He et al., "Deep residual learning for image recognition", CVPR 2016.

As in the original, the first convolution of a block has the stride, and the one of the stem has a bias.
"""

from net import Net

from networks.residual import STAGE_CHANNELS, bottleneck


def resnet(name: str, blocks: list[int]) -> Net:
    net = Net(name, batch=32)
    with net.scope("stem"):
        x = net.relu(net.bn(net.conv(net.input(3, 224), 64, kernel=7, stride=2, pad=3)))
        x = net.max_pool(x, kernel=3, stride=2)
    for stage, (count, channels) in enumerate(zip(blocks, STAGE_CHANNELS, strict=True), start=1):
        for block in range(count):
            with net.scope(f"layer{stage}.{block}"):
                x = bottleneck(net, x, channels, strides=(2, 1) if stage > 1 and block == 0 else (1, 1))
    with net.scope("head"):
        net.softmax_ce(net.linear(net.avg_pool(x, kernel=7, stride=7), 1000))
    return net


def resnet50() -> Net:
    return resnet("ResNet50", [3, 4, 6, 3])


def resnet152() -> Net:
    return resnet("ResNet152", [3, 8, 36, 3])
