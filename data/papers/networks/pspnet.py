"""PSPNet: H. Zhao et al., "Pyramid scene parsing network", CVPR 2017.

A dilated ResNet101 with a stem of three convolutions, a pyramid of four pooled views of the last features, and an
auxiliary loss, scaled and added to the main one.
"""

from net import Net, Tensor

from networks.residual import STAGE_CHANNELS, bottleneck, conv_bn_relu

BLOCKS = [3, 4, 23, 3]
DILATIONS = [1, 1, 2, 4]
PYRAMID_BINS = [1, 2, 3, 6]
INPUT_SIZE = 713
CLASSES = 17


def stem(net: Net) -> Tensor:
    with net.scope("stem"):
        x = conv_bn_relu(net, net.input(3, INPUT_SIZE), 64, kernel=3, stride=2, pad=1, tag="1")
        x = conv_bn_relu(net, x, 64, kernel=3, pad=1, tag="2")
        x = conv_bn_relu(net, x, 128, kernel=3, pad=1, tag="3")
        return net.max_pool(x, kernel=3, stride=2, pad=1)


def backbone(net: Net, x: Tensor) -> list[Tensor]:
    """The last features of each stage. Only the second stage has a stride; the third and the fourth dilate instead."""
    outputs: list[Tensor] = []
    for stage, (count, channels, dilation) in enumerate(zip(BLOCKS, STAGE_CHANNELS, DILATIONS, strict=True), start=1):
        for block in range(count):
            with net.scope(f"layer{stage}.{block}"):
                x = bottleneck(net, x, channels, (1, 2) if stage == 2 and block == 0 else (1, 1), dilation)
        outputs.append(x)
    return outputs


def pyramid(net: Net, x: Tensor) -> Tensor:
    views = [x]
    with net.scope("pyramid"):
        for bins in PYRAMID_BINS:
            with net.scope(f"bins{bins}"):
                window = x.size // bins
                view = net.avg_pool(x, kernel=window, stride=window)
                view = conv_bn_relu(net, view, x.channels // len(PYRAMID_BINS), kernel=1)
                views.append(net.resize(view, x.size))
        return net.concat(views)


def classifier_loss(net: Net, x: Tensor, last_kernel: int, scope: str) -> Tensor:
    with net.scope(scope):
        x = net.dropout(conv_bn_relu(net, x, 512, kernel=3, pad=1, tag="1"))
        x = net.conv(x, CLASSES, last_kernel, pad=last_kernel // 2, tag="2")
        return net.softmax_ce(net.resize(x, INPUT_SIZE))


def pspnet() -> Net:
    net = Net("PSPNet", batch=1)
    stages = backbone(net, stem(net))
    auxiliary = net.mul_const(classifier_loss(net, stages[2], last_kernel=3, scope="auxiliary"), "_auxiliary")
    main = classifier_loss(net, pyramid(net, stages[3]), last_kernel=1, scope="head")
    net.add(auxiliary, main, "_losses")
    return net
