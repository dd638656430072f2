"""Arguments of the public functions, in the forms that users give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    import torch


def byte_count(name: str, value: Any) -> int:
    """'6GiB', '500MB' or a number of bytes. A ratio is refused, because it is not a bound."""
    if isinstance(value, str):
        try:
            return _core.parse_bytes(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer()
    if not whole or value < 0:
        raise ValueError(f"{name}={value!r}: give bytes, as a whole number or as text like '6GiB'")
    return int(value)


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    return (inputs,), {}


def device_of(model: torch.nn.Module, inputs: Any) -> torch.device:
    """Where a step of the model would run: where its parameters lie, or otherwise its buffers or its inputs."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = (*model.parameters(), *model.buffers(), *tree_leaves(inputs))
    return next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), torch.device("cpu"))
