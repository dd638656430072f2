"""The training steps of data/steps: forward, loss and backward in one module.

    step = STEPS["resnet50_96"]
    module = step.make_module()  # its output is the loss
    args, kwargs = step.case.make_inputs()

Each has a tiny form with the same operators, for trying things out where there is no GPU.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from . import huggingface as hf
from .zoo import CASES, FULL_CASES, Case, labelled_images, labelled_tokens, own_loss


class Training(nn.Module):
    """A network and the loss of its output."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.network = case.make_model()
        self.loss = case.loss

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        return self.loss(self.network(*args, **kwargs))


@dataclass(frozen=True)
class Step:
    name: str
    title: str
    case: Case
    tiny: Case
    precision: str = "fp32 with TF32"

    def make_module(self, *, tiny: bool = False) -> nn.Module:
        """The module has a class of its own, because a captured graph is named after the class."""
        named: Any = type(self.title, (Training,), {})
        return named(self.tiny if tiny else self.case).train()


def pictured(name: str, title: str, network: str) -> Step:
    return Step(name, title, FULL_CASES[network], CASES[network])


GPT2 = partial(hf.gpt2, dropout=0.0)  # It is usually trained without dropout today.
DEEP = partial(GPT2, 420, 256, 8192, 256)

# The step that takes longest comes first, so that the others are captured beside it.
STEPS = {step.name: step for step in (
    Step("gpt_420_layers", "GPT of 420 layers, 8 x 256",
         Case("gpt_420_layers", 8, DEEP, labelled_tokens(8192, 256), own_loss),
         Case("gpt_420_layers", 1, partial(GPT2, 8, 64, 200, 32), labelled_tokens(200, 32), own_loss)),
    pictured("vgg19_64", "VGG19, batch 64", "vgg19"),
    pictured("unet_8x572", "U-Net, batch 8 of 572x572", "unet"),
    pictured("resnet50_96", "ResNet50, batch 96", "resnet50"),
    pictured("resnet152_48", "ResNet152, batch 48", "resnet152"),
    pictured("googlenet_256", "GoogLeNet, batch 256", "googlenet"),
    pictured("pspnet_2", "PSPNet, batch 2 of 713x713", "pspnet"),
    pictured("densenet161_32", "DenseNet161, batch 32", "densenet161"),
    Step("densenet161_128", "DenseNet161, batch 128",
         replace(FULL_CASES["densenet161"], batch=128), CASES["densenet161"]),
    Step("convnext_base_128", "ConvNeXt-B, batch 128",
         Case("convnext_base", 128, hf.convnext, labelled_images(224, 1000), own_loss),
         Case("convnext_base", 2, partial(hf.convnext, (1, 1, 2, 1), 8, 10), labelled_images(32, 10), own_loss)),
    Step("gpt2_medium_8x1024", "GPT-2 medium, 8 x 1024",
         Case("gpt2_medium", 8, partial(GPT2, 24, 1024), labelled_tokens(50257, 1024), own_loss),
         Case("gpt2_medium", 2, partial(GPT2, 3, 64, 200, 32), labelled_tokens(200, 32), own_loss)),
    Step("bert_large_32x512", "BERT large with dropout, 32 x 512",
         Case("bert_large", 32, partial(hf.bert, 24, 1024), labelled_tokens(30522, 512), own_loss),
         CASES["hf_bert"]),
    Step("vit_large_64", "ViT-L/16, batch 64",
         Case("vit_large", 64, partial(hf.vit, 24, 1024), labelled_images(224, 1000), own_loss),
         CASES["hf_vit"]),
    Step("llama_1b_4x2048", "Llama of 1.2 billion parameters, 4 x 2048",
         Case("llama_1b", 4, hf.llama, labelled_tokens(128_256, 2048), own_loss),
         Case("llama_1b", 2, partial(hf.llama, 2, 128, 256, 200, 32), labelled_tokens(200, 32), own_loss),
         precision="bf16"),
)}
