"""Models of timm and torchvision, which are tried where these packages are installed.

They have their own widths, so that batches for a GPU are needed for a step that takes more than its parameters.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..zoo import Inputs, cross_entropy
from .build import CLASSES, Architecture, from_timm, from_torchvision

attention = partial(from_timm, "vision transformer", size=64)
convolution = partial(from_timm, "convolutional network", size=128, batch=32)

TIMM = (
    attention("vit_tiny_patch16_224", img_size=64, patch_size=8, depth=3),
    attention("deit3_small_patch16_224", img_size=64, patch_size=8, depth=3),
    attention("swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(1, 1, 2, 1), embed_dim=32),
    attention("cait_xxs24_224", img_size=64, patch_size=8, depth=3),
    attention("beit_base_patch16_224", img_size=64, patch_size=8, depth=3, embed_dim=96, num_heads=4),
    attention("xcit_nano_12_p16_224", img_size=64, depth=3),
    attention("coat_tiny", img_size=64),
    attention("maxvit_rmlp_pico_rw_256", img_size=64),
    attention("mixer_s16_224", img_size=64, batch=64),
    attention("gmlp_s16_224", img_size=64, batch=64),
    convolution("resnet26"),
    convolution("resnext50_32x4d"),
    convolution("seresnet18"),
    convolution("convnext_atto"),
    convolution("efficientnet_b0"),
    convolution("mobilenetv3_small_100"),
    convolution("regnety_002"),
    convolution("densenet121"),
    convolution("nfnet_l0"),
    convolution("dla34"),
    convolution("hrnet_w18_small"),
    convolution("ghostnet_100"),
    convolution("repvgg_a0"),
    convolution("edgenext_xx_small"),
)


def map_loss(output: Any) -> Tensor:
    return cross_entropy(output["out"])


def detected(batch: int, generator: torch.Generator) -> Inputs:
    """Images with boxes, as the detectors of torchvision take them in training."""
    found: Any = [list(torch.rand(batch, 3, 64, 64, generator=generator)), []]
    for i in range(batch):
        corners = 30 * torch.rand(1 + i % 3, 2, generator=generator)
        sizes = 8 + 20 * torch.rand(len(corners), 2, generator=generator)
        found[1].append({"boxes": torch.cat([corners, corners + sizes], 1),
                         "labels": torch.randint(1, CLASSES, (len(corners),), generator=generator)})
    return tuple(found), {}


def sum_of_losses(output: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(output.values())).sum()


net = partial(from_torchvision, "convolutional network", size=128, batch=32)
mapped = partial(from_torchvision, "segmentation or depth", size=128, batch=8, loss=map_loss, weights_backbone=None)
boxed = partial(from_torchvision, "detection", batch=2, sample=detected, loss=sum_of_losses, weights_backbone=None, min_size=64,
                max_size=64)

TORCHVISION = (
    net("alexnet", size=224, batch=256),
    net("vgg11_bn", batch=64),
    net("resnet18"),
    net("wide_resnet50_2"),
    net("densenet121"),
    net("googlenet", aux_logits=False, init_weights=False),
    net("squeezenet1_1"),
    net("shufflenet_v2_x0_5"),
    net("mnasnet0_5"),
    net("mobilenet_v3_small"),
    net("efficientnet_v2_s"),
    net("regnet_y_400mf"),
    net("convnext_tiny"),
    from_torchvision("vision transformer", "vit_b_16", image_size=64, size=64, batch=128),
    from_torchvision("vision transformer", "swin_t", size=64, batch=64),
    from_torchvision("vision transformer", "maxvit_t", size=224, batch=8),
    mapped("fcn_resnet50"),
    mapped("deeplabv3_mobilenet_v3_large"),
    mapped("lraspp_mobilenet_v3_large"),
    boxed("retinanet_resnet50_fpn"),
    boxed("fasterrcnn_mobilenet_v3_large_fpn"),
)

PACKAGES: tuple[Architecture, ...] = (*TIMM, *TORCHVISION)
