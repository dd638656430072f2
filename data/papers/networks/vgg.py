"""VGG19: K. Simonyan and A. Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015."""

from net import Net

# (convolutions, channels) of each stage; a pooling follows each.
STAGES = [(2, 64), (2, 128), (4, 256), (4, 512), (4, 512)]


def vgg19() -> Net:
    net = Net("VGG19", batch=32)
    x = net.input(3, 224)
    for stage, (count, channels) in enumerate(STAGES, start=1):
        with net.scope(f"features.{stage}"):
            for layer in range(1, count + 1):
                x = net.conv_relu(x, channels, kernel=3, pad=1, tag=f"{stage}_{layer}")
            x = net.max_pool(x, kernel=2, stride=2, tag=str(stage))
    with net.scope("classifier"):
        for tag in ("6", "7"):
            x = net.dropout(net.relu(net.linear(x, 4096, tag), tag), tag)
        net.softmax_ce(net.linear(x, 1000, tag="8"))
    return net
