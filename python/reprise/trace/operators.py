"""What tracing has to know about single operators. The rest is in runtime/program/operator_facts.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from ..native import _torch
from .collectives import is_collective, results_in_one_piece

aten = torch.ops.aten
REPEATABLE: set[str] = set()  # operators that the user has declared to be


def declare_repeatable(operator: OpOverload | str) -> None:
    """Declares that a custom operator gives the same bits every time it runs on the same inputs,
    and changes nothing else, so that Reprise may compute it again."""
    name = operator if isinstance(operator, str) else operator.name()
    _torch.declare_repeatable(name)
    REPEATABLE.add(name)


def fake_results(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The results of a call on fake tensors. PyTorch has no fake kernels for cuDNN's batch norm; how much
    it keeps for backward is known only after it is measured."""
    if target is aten.cudnn_batch_norm.default:
        x, weight, training = args[0], args[1], args[5]
        saved = weight if training else weight.new_empty(0)
        return (torch.empty_like(x), torch.empty_like(saved), torch.empty_like(saved),
                x.new_empty(0, dtype=torch.uint8))
    if target is aten.cudnn_batch_norm_backward.default:
        return torch.empty_like(args[0]), torch.empty_like(args[2]), torch.empty_like(args[2])
    results = target(*args, **kwargs)
    return results_in_one_piece(results) if is_collective(target) else results


def wanted_results(target: Any, args: Sequence[Any], results: Any) -> Any:
    """The results without those that the call is told to leave out: kernels return nothing for them, but
    some fake kernels return tensors."""
    if not isinstance(target, OpOverload):
        return results
    names = [argument.name for argument in target._schema.arguments]
    if "output_mask" not in names[: len(args)]:
        return results
    mask = args[names.index("output_mask")]
    return tuple(result if wanted else None for result, wanted in zip(results, mask, strict=True))
