"""GoogLeNet: C. Szegedy et al., "Going deeper with convolutions", CVPR 2015.

Two auxiliary classifiers leave the trunk; the three losses are summed without weights.
"""

from net import Net, Tensor

# The channels of each block: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def inception(net: Net, x: Tensor, block: str) -> Tensor:
    """An inception block. One ReLU after the concatenation serves all four branches."""
    direct, reduce3, out3, reduce5, out5, pool = INCEPTION[block]
    with net.scope("inception" + block):
        branch1 = net.conv(x, direct, kernel=1, tag="1x1")
        branch3 = net.conv(net.conv_relu(x, reduce3, kernel=1, tag="3x3_reduce"), out3, kernel=3, pad=1, tag="3x3")
        branch5 = net.conv(net.conv_relu(x, reduce5, kernel=1, tag="5x5_reduce"), out5, kernel=5, pad=2, tag="5x5")
        pooled = net.max_pool(x, kernel=3, stride=1, pad=1)
        branch_pool = net.conv(pooled, pool, kernel=1, tag="_pool")
        return net.relu(net.concat([branch1, branch3, branch5, branch_pool]))


def auxiliary_loss(net: Net, x: Tensor, scope: str) -> Tensor:
    with net.scope(scope):
        x = net.conv_relu(net.avg_pool(x, kernel=5, stride=3), 128, kernel=1)
        x = net.relu(net.linear(x, 1024, tag="1"), "_linear1")
        return net.softmax_ce(net.linear(x, 1000, tag="2"))


def stem(net: Net) -> Tensor:
    with net.scope("stem"):
        x = net.relu(net.conv(net.input(3, 224), 64, kernel=7, stride=2, pad=3, tag="1"), "1")
        x = net.lrn(net.max_pool(x, kernel=3, stride=2, tag="1"), "1")
        x = net.conv_relu(x, 64, kernel=1, tag="2_reduce")
        x = net.conv_relu(x, 192, kernel=3, pad=1, tag="2")
        return net.max_pool(net.lrn(x, "2"), kernel=3, stride=2, tag="2")


def googlenet() -> Net:
    net = Net("GoogLeNet", batch=32)
    x = stem(net)
    losses: list[Tensor] = []
    for block in INCEPTION:
        if block in ("4a", "5a"):
            x = net.max_pool(x, kernel=3, stride=2, tag="_before_" + block)
        x = inception(net, x, block)
        if block in ("4a", "4d"):
            losses.append(auxiliary_loss(net, x, f"auxiliary{len(losses) + 1}"))
    with net.scope("head"):
        x = net.dropout(net.avg_pool(x, kernel=7, stride=1))
        losses.append(net.softmax_ce(net.linear(x, 1000)))
    net.add(net.add(losses[0], losses[1], "_auxiliary"), losses[2], "_losses")
    return net
