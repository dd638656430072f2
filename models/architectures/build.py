"""How the architectures of the list are made: models from configurations, and batches for them. Nothing is downloaded.

Sizes are small, so that a step takes a fraction of a second on two cores, and batches are large beside the weights, so that
most of what a step takes is what it keeps for backward.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..zoo import Inputs, Loss, MakeModel, MakeSample, cross_entropy, own_loss

WORDS, LENGTH, BATCH = 512, 64, 8
CLASSES, SIZE = 10, 32
WIDTH, INNER, LAYERS, HEADS = 64, 192, 3, 4


@dataclass(frozen=True)
class Architecture:
    name: str
    kind: str
    package: str  # that has to be there
    make_model: MakeModel
    sample: MakeSample
    batch: int
    loss: Loss
    needs: tuple[str, ...] = ()  # other packages

    def make_inputs(self, seed: int = 0) -> Inputs:
        """The positional and keyword arguments of the model, on the CPU. Equal seeds give equal arguments."""
        return self.sample(self.batch, torch.Generator().manual_seed(seed))


def from_transformers(kind: str, name: str, model: str, sample: MakeSample, *, batch: int = BATCH, loss: Loss = own_loss,
                      needs: tuple[str, ...] = (), **settings: Any) -> Architecture:
    def make() -> nn.Module:
        made = getattr(importlib.import_module("transformers"), model)
        return made(made.config_class(**settings))

    return Architecture(name, kind, "transformers", make, sample, batch, loss, needs)


def from_timm(kind: str, name: str, *, size: int = SIZE, batch: int = 16, **settings: Any) -> Architecture:
    def make() -> nn.Module:
        return importlib.import_module("timm").create_model(name, pretrained=False, num_classes=CLASSES, **settings)

    return Architecture(f"timm-{name}", kind, "timm", make, pixels(size), batch, cross_entropy)


def from_torchvision(kind: str, name: str, *, size: int = SIZE, batch: int = 16, loss: Loss = cross_entropy,
                     sample: MakeSample | None = None, **settings: Any) -> Architecture:
    def make() -> nn.Module:
        models = importlib.import_module("torchvision.models")
        return models.get_model(name, weights=None, **{"num_classes": CLASSES, **settings})

    return Architecture(f"torchvision-{name}", kind, "torchvision", make, sample or pixels(size), batch, loss)


def of_this_project(kind: str, name: str, make: MakeModel, sample: MakeSample, *, batch: int = BATCH,
                    loss: Loss = own_loss) -> Architecture:
    return Architecture(name, kind, "torch", make, sample, batch, loss)


# -- Sizes under the names that most configurations give them.

def sizes(**others: Any) -> dict[str, Any]:
    return {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "max_position_embeddings": LENGTH, **others}


def decoder_sizes(**others: Any) -> dict[str, Any]:
    return {**sizes(use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2), **others}


def grouped(**others: Any) -> dict[str, Any]:
    """A decoder whose heads share keys and values in pairs."""
    return decoder_sizes(num_key_value_heads=HEADS // 2, head_dim=WIDTH // HEADS, **others)


def pair_sizes(**others: Any) -> dict[str, Any]:
    """An encoder and a decoder, in the names of BART and its kin."""
    return {"vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
            "max_position_embeddings": LENGTH, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "decoder_start_token_id": 1, "forced_eos_token_id": None, **others}


def picture_sizes(**others: Any) -> dict[str, Any]:
    return {"image_size": SIZE, "patch_size": 4, "num_channels": 3, "hidden_size": WIDTH, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_labels": CLASSES, **others}


# -- Batches.

def words(batch: int, length: int, generator: torch.Generator) -> Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=generator)


def text(length: int = LENGTH) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        found = words(batch, length, generator)
        return (), {"input_ids": found, "labels": found.clone()}

    return sample


def text_pairs(length: int = LENGTH) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        return (), {"input_ids": words(batch, length, generator), "labels": words(batch, length // 2, generator)}

    return sample


def classified_text(length: int = LENGTH) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        return (), {"input_ids": words(batch, length, generator),
                    "labels": torch.randint(CLASSES, (batch,), generator=generator)}

    return sample


def pixels(size: int = SIZE) -> MakeSample:
    return lambda batch, generator: ((torch.randn(batch, 3, size, size, generator=generator),), {})


def images(size: int = SIZE, *, labels: bool = True) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        found = {"pixel_values": torch.randn(batch, 3, size, size, generator=generator)}
        if labels:
            found["labels"] = torch.randint(CLASSES, (batch,), generator=generator)
        return (), found

    return sample


def maps(size: int, *, dtype: torch.dtype = torch.long) -> MakeSample:
    """Images with a class, or a number, for each pixel."""
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        classes = torch.randint(CLASSES, (batch, size, size), generator=generator)
        return (), {"pixel_values": torch.randn(batch, 3, size, size, generator=generator), "labels": classes.to(dtype)}

    return sample


def boxes(size: int = SIZE, most: int = 3) -> MakeSample:
    """Images with 1 to `most` objects each."""
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        labels: Any = []
        for i in range(batch):
            count = 1 + i % most
            corners = torch.rand(count, 4, generator=generator)
            found = {"class_labels": torch.randint(CLASSES, (count,), generator=generator),
                     "boxes": torch.cat([0.3 + 0.4 * corners[:, :2], 0.1 + 0.3 * corners[:, 2:]], 1)}
            labels.append(found)
        return (), {"pixel_values": torch.randn(batch, 3, size, size, generator=generator), "labels": labels}

    return sample


def segments(size: int, most: int = 3) -> MakeSample:
    """Images with 1 to `most` masks each."""
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        counts = [1 + i % most for i in range(batch)]
        found: Any = {
            "pixel_values": torch.randn(batch, 3, size, size, generator=generator),
            "mask_labels": [(torch.rand(count, size, size, generator=generator) > 0.5).float() for count in counts],
            "class_labels": [torch.randint(CLASSES, (count,), generator=generator) for count in counts]}
        return (), found

    return sample


def sounds(length: int, label_length: int | None = None) -> MakeSample:
    """Waves, with a sentence each, or with one class each."""
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        shape = (batch,) if label_length is None else (batch, label_length)
        return (), {"input_values": torch.randn(batch, length, generator=generator),
                    "labels": torch.randint(1, CLASSES, shape, generator=generator)}

    return sample


def spectra(*shape: int, label_length: int | None = None, name: str = "input_features") -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        labels = torch.randint(CLASSES, (batch,), generator=generator) if label_length is None else words(
            batch, label_length, generator)
        return (), {name: torch.randn(batch, *shape, generator=generator), "labels": labels}

    return sample


def captioned(size: int = SIZE, length: int = 16, **others: Any) -> MakeSample:
    """Images with a text each."""
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        return (), {"input_ids": words(batch, length, generator),
                    "pixel_values": torch.randn(batch, 3, size, size, generator=generator), **others}

    return sample


def films(frames: int, size: int = SIZE) -> MakeSample:
    def sample(batch: int, generator: torch.Generator) -> Inputs:
        return (), {"pixel_values": torch.randn(batch, frames, 3, size, size, generator=generator),
                    "labels": torch.randint(CLASSES, (batch,), generator=generator)}

    return sample
