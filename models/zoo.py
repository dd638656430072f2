"""Every network as a training step: a model, inputs, and a loss of its output.

    case = CASES["resnet50"]
    model = case.make_model()
    args, kwargs = case.make_inputs()
    case.loss(model(*args, **kwargs)).backward()

CASES are tiny: they have all layers of the real network, but are narrow and have small inputs, so that
a step takes a fraction of a second on two cores. FULL_CASES have the size of the papers, for a GPU.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import huggingface as hf
from .densenet import DenseNet161
from .googlenet import LOSS_WEIGHTS, GoogLeNet
from .inplace_views import InPlaceViews
from .pspnet import AUXILIARY_WEIGHT, PspNet
from .recurrent import LstmLanguageModel, UnrolledLanguageModel
from .regularised import DropoutMlp, DropoutTransformer
from .resnet import ResNet
from .unet import UNet
from .vgg import Vgg19

Inputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]
MakeModel = Callable[[], nn.Module]
MakeSample = Callable[[int, torch.Generator], Inputs]
Loss = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    batch: int
    make_model: MakeModel
    sample: MakeSample
    loss: Loss  # a function of the model's output; targets are made from its shape

    def make_inputs(self, batch: int | None = None, seed: int = 0) -> Inputs:
        """The positional and keyword arguments of the model, on the CPU. Equal seeds give equal arguments."""
        return self.sample(batch or self.batch, torch.Generator().manual_seed(seed))


def features(*shape: int) -> MakeSample:
    return lambda batch, generator: ((torch.randn(batch, *shape, generator=generator),), {})


def square(size: int, channels: int = 3) -> MakeSample:
    return features(channels, size, size)


def tokens(vocabulary: int, length: int) -> MakeSample:
    return lambda batch, generator: (
        (torch.randint(vocabulary, (batch, length), generator=generator),), {}
    )


def labelled_images(size: int, classes: int) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        labels = torch.randint(classes, (batch,), generator=generator)
        pixels = torch.randn(batch, 3, size, size, generator=generator)
        return (), {"pixel_values": pixels, "labels": labels}

    return sample


def labelled_tokens(vocabulary: int, length: int) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        text = torch.randint(vocabulary, (batch, length), generator=generator)
        return (), {"input_ids": text, "labels": text.clone()}

    return sample


def cross_entropy(logits: Tensor, classes_at: int = 1) -> Tensor:
    """The cross entropy with the classes 0, 1, 2, ... in turn. The gradient has the layout of the logits."""
    if classes_at == -1:
        logits = logits.flatten(0, -2)
    shape = (logits.shape[0], *logits.shape[2:])
    targets = torch.arange(math.prod(shape), device=logits.device) % logits.shape[1]
    if logits.dim() == 2:
        return functional.cross_entropy(logits, targets.view(shape))
    # The mean is a call of its own, because CUDA's kernel for images adds numbers in any order.
    return functional.cross_entropy(logits, targets.view(shape), reduction="none").mean()


def weighted(weights: Sequence[float], outputs: Sequence[Tensor]) -> Tensor:
    pairs = zip(weights, outputs, strict=True)
    return torch.stack([weight * cross_entropy(logits) for weight, logits in pairs]).sum()


def own_loss(output: Any) -> Tensor:
    """The loss of a model that was given its labels."""
    return output.loss


GOOGLENET_LOSS = partial(weighted, LOSS_WEIGHTS)
PSPNET_LOSS = partial(weighted, (1.0, AUXILIARY_WEIGHT))
NEXT_TOKEN = partial(cross_entropy, classes_at=-1)


def registry(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


CASES = registry(
    Case("resnet50", 2, partial(ResNet, 50, 16, 10), square(64), cross_entropy),
    Case("resnet152", 2, partial(ResNet, 152, 8, 10), square(64), cross_entropy),
    Case("vgg19", 2, partial(Vgg19, 8, 64, 128, 10), square(64), cross_entropy),
    Case("densenet161", 2, partial(DenseNet161, 8, 10), square(64), cross_entropy),
    Case("googlenet", 2, partial(GoogLeNet, 4, 10), square(64), GOOGLENET_LOSS),
    Case("unet", 1, partial(UNet, 8), square(188, channels=1), cross_entropy),
    Case("pspnet", 1, partial(PspNet, 8, 5), square(65), PSPNET_LOSS),
    Case("lstm", 4, partial(LstmLanguageModel, 100, 32), tokens(100, 16), NEXT_TOKEN),
    Case("lstm_cells", 4, partial(UnrolledLanguageModel, 100, 32), tokens(100, 16), NEXT_TOKEN),
    Case("dropout_mlp", 16, partial(DropoutMlp, 64), features(64), cross_entropy),
    Case("dropout_transformer", 4, partial(DropoutTransformer, 100, 32),
         tokens(100, 16), NEXT_TOKEN),
    Case("inplace_views", 8, partial(InPlaceViews, 16), features(16), cross_entropy),
    Case("hf_resnet", 2, partial(hf.resnet, (3, 4, 6, 3), 8, 10),
         labelled_images(64, 10), own_loss),
    Case("hf_gpt2", 2, partial(hf.gpt2, 3, 64, 200, 32), labelled_tokens(200, 32), own_loss),
    Case("hf_bert", 2, partial(hf.bert, 3, 64, 200, 32), labelled_tokens(200, 32), own_loss),
    Case("hf_vit", 2, partial(hf.vit, 3, 64, 32, 8, 10), labelled_images(32, 10), own_loss),
)

# The batches of the convolutional networks are those of Kusumoto et al.'s measurements.
FULL_CASES = registry(
    Case("resnet50", 96, partial(ResNet, 50), square(224), cross_entropy),
    Case("resnet152", 48, partial(ResNet, 152), square(224), cross_entropy),
    Case("vgg19", 64, Vgg19, square(224), cross_entropy),
    Case("densenet161", 32, DenseNet161, square(224), cross_entropy),
    Case("googlenet", 256, GoogLeNet, square(224), GOOGLENET_LOSS),
    Case("unet", 8, UNet, square(572, channels=1), cross_entropy),
    Case("pspnet", 2, PspNet, square(713), PSPNET_LOSS),
    Case("lstm", 64, partial(LstmLanguageModel, 10_000, 1500), tokens(10_000, 256), NEXT_TOKEN),
    Case("lstm_cells", 64, partial(UnrolledLanguageModel, 10_000, 1500),
         tokens(10_000, 64), NEXT_TOKEN),
    Case("dropout_mlp", 8192, partial(DropoutMlp, 4096, 16), features(4096), cross_entropy),
    Case("dropout_transformer", 16, partial(DropoutTransformer, 32_000, 1024, 24, 16),
         tokens(32_000, 1024), NEXT_TOKEN),
    Case("inplace_views", 8192, partial(InPlaceViews, 4096), features(4096), cross_entropy),
    Case("hf_resnet", 96, hf.resnet, labelled_images(224, 1000), own_loss),
    Case("hf_gpt2", 8, hf.gpt2, labelled_tokens(50257, 1024), own_loss),
    Case("hf_bert", 32, hf.bert, labelled_tokens(30522, 512), own_loss),
    Case("hf_vit", 64, hf.vit, labelled_images(224, 1000), own_loss),
)
