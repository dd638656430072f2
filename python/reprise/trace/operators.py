"""What Reprise has to know of single operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from ..native import _torch

_declared_repeatable: set[str] = set()

aten = torch.ops.aten
_SCALAR_FORMS = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}

# Kernels that have read a row, or all of it that others read, before they write a number of it, and write each where they read it
# last: as with pointwise operators, the result may lie over an operand.
_BY_ROWS = {aten._softmax.default, aten._log_softmax.default,
            aten._softmax_backward_data.default, aten._log_softmax_backward_data.default}

# Attention is tagged random; it draws nothing at dropout 0.
_DROPOUT_ARGUMENTS = ("dropout_p", "p")


def declare_repeatable(operator: OpOverload | str) -> None:
    """Says that an operator of one's own gives the same bits every time it runs on the same
    inputs, and changes nothing else: Reprise may then compute it again."""
    _declared_repeatable.add(operator if isinstance(operator, str) else operator.name())


def is_random(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for argument, value in _arguments(node):
        if argument in _DROPOUT_ARGUMENTS and "attention" in target.name() and value == 0:
            return False
    return True


def is_repeatable(node: fx.Node, device: torch.device) -> bool:
    """Whether a second run gives the same bits."""
    target = node.target
    if target.name() in _declared_repeatable:
        return True
    if target.namespace not in ("aten", "prims"):
        return False
    if torch.are_deterministic_algorithms_enabled():
        return True
    name = target.overloadpacket.__name__
    if _torch.accumulates_in_any_order(name) and dict(_arguments(node)).get("accumulate") is not False:
        return False
    return device.type == "cpu" or (
        torch.Tag.nondeterministic_bitwise not in target.tags and not _torch.adds_in_any_order(name))


def lowered(target: OpOverload) -> OpOverload:
    """The operator that `target` ends in: a scalar operand is a tensor of one number, which
    eager makes at every call and a program once."""
    return _SCALAR_FORMS.get(target, target)


def fake_results(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Of a call on fake tensors. PyTorch has no fake kernels of cuDNN's batch norm; what it keeps
    for backward is known only when it is measured."""
    if target is aten.cudnn_batch_norm.default:
        x, weight, training = args[0], args[1], args[5]
        saved = weight if training else weight.new_empty(0)
        return (torch.empty_like(x), torch.empty_like(saved), torch.empty_like(saved),
                x.new_empty(0, dtype=torch.uint8))
    if target is aten.cudnn_batch_norm_backward.default:
        return torch.empty_like(args[0]), torch.empty_like(args[2]), torch.empty_like(args[2])
    return target(*args, **kwargs)


def wanted_results(target: Any, args: Sequence[Any], results: Any) -> Any:
    """Without those that the call is told to leave out: kernels give nothing for them, some fake
    ones give tensors."""
    if not isinstance(target, OpOverload):
        return results
    names = [argument.name for argument in target._schema.arguments]
    if "output_mask" not in names[: len(args)]:
        return results
    mask = args[names.index("output_mask")]
    return tuple(result if wanted else None for result, wanted in zip(results, mask, strict=True))


def in_place_form(node: fx.Node, device: torch.device) -> Iterator[tuple[int, tuple]]:
    """Calls that compute the same as `node` and write the result over one of its operands:
    (position of the operand, (operator, args, kwargs))."""
    target = lowered(node.target)
    if torch.Tag.pointwise not in target.tags and target not in _BY_ROWS:
        return
    out = _out_overload(target, device)
    if out is not None:
        overload, name = out
        for index, argument in enumerate(node.args):
            if isinstance(argument, fx.Node):
                yield index, (overload, node.args, {**node.kwargs, name: argument})
        return
    overload = _in_place_overload(target, device)
    if overload is not None and node.args and isinstance(node.args[0], fx.Node):
        yield 0, (overload, node.args, node.kwargs)


def _arguments(node: fx.Node) -> Iterator[tuple[str, Any]]:
    schema = node.target._schema.arguments
    for index, argument in enumerate(schema):
        if index < len(node.args):
            yield argument.name, node.args[index]
        else:
            yield argument.name, node.kwargs.get(argument.name, argument.default_value)


def _has_kernel(overload: OpOverload, device: torch.device) -> bool:
    """A kernel of the device itself: those generated for all devices make a copy."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), device.type.upper())


def _kind(argument: Any) -> tuple[str, str]:
    return argument.name, str(argument.type)


def _out_overload(target: OpOverload, device: torch.device) -> tuple[OpOverload, str] | None:
    packet = target.overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = overload._schema.arguments
        extra = arguments[len(target._schema.arguments) :]
        if len(extra) != 1 or not extra[0].is_out or not _has_kernel(overload, device):
            continue
        if [*map(_kind, arguments[:-1])] == [*map(_kind, target._schema.arguments)]:
            return overload, extra[0].name
    return None


def _in_place_overload(target: OpOverload, device: torch.device) -> OpOverload | None:
    packet = getattr(torch.ops.aten, target.overloadpacket.__name__ + "_", None)
    overload = getattr(packet, target._overloadname, None) if packet is not None else None
    return overload if overload is not None and _has_kernel(overload, device) else None
