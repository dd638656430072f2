"""The seven networks, by the name of their file."""

from collections.abc import Callable

from net import Net

from networks.densenet import densenet161
from networks.googlenet import googlenet
from networks.pspnet import pspnet
from networks.resnet import resnet50, resnet152
from networks.unet import unet
from networks.vgg import vgg19

NETWORKS: dict[str, Callable[[], Net]] = {
    "vgg19": vgg19,
    "resnet50": resnet50,
    "resnet152": resnet152,
    "densenet161": densenet161,
    "googlenet": googlenet,
    "unet": unet,
    "pspnet": pspnet,
}
