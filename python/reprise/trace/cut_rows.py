"""A loss of some of the rows, as calls on all rows, so that it can run in slices.

A loop may cut its logits along the sequence and copy them before the loss: logits[:, :-1].contiguous().view(-1, words). The
copy has other rows than the product, and no range of rows is a slice of both. Here all rows go through the softmax, the
labels of those that were cut off are ignored, and what is added up for the loss are the numbers of the rows that are left:

    p = log_softmax(logits)                      of all rows
    a = nll_loss(p, labels with ignored ones)    has the gradients: zeros where a row was cut off, as in eager
    b = nll_loss(p[rows, labels][kept rows])     adds up what eager adds up, in its order
    loss = a + (b - a)                           is b: the difference of two numbers this close is exact
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from .head import Input, Then, name_of

_VIEWS = frozenset({"view", "reshape", "flatten", "contiguous"})
_CASTS = frozenset({"float", "double", "half", "bfloat16", "to"})
_IGNORED = -100


class CutRows:
    """Calls on logits that cut rows and end in a loss."""

    def __init__(self, logits: Tensor, cut: Any, casts: list[Then], loss: Then, target: Input) -> None:
        self.shape, self.cut, self.casts, self.target = tuple(logits.shape), cut, casts, target
        self.reduction = loss.kwargs.get("reduction", "mean")
        self.ignored = loss.kwargs.get("ignore_index", _IGNORED)
        with torch.no_grad():
            self.kept = tuple(torch.empty(self.shape, device="meta")[cut].shape)

    @staticmethod
    def of(logits: Tensor, calls: Sequence[Then]) -> CutRows | None:
        """The calls if they are of this kind; otherwise None."""
        *path, loss = calls
        cuts = [call for call in path if name_of(call.function) == "getitem"]
        others = [call for call in path if name_of(call.function) != "getitem"]
        if len(cuts) != 1 or not _is_cut(cuts[0].args[0], logits.dim()) or path[0] not in (cuts[0], *_casts(path)):
            return None
        if not all(name_of(call.function) in _VIEWS | _CASTS for call in others) or not _is_plain(loss):
            return None
        made = torch.empty(tuple(logits.shape), dtype=logits.dtype, device="meta")
        for call in path:
            if call is cuts[0] and made.dim() != logits.dim():
                return None
            made = call.function(made, *call.args, **call.kwargs)
        if made.dim() != 2 or made.shape[1] != logits.shape[-1]:
            return None
        return CutRows(logits, cuts[0].args[0], _casts(path), loss, loss.args[0])

    def add(self, graph: fx.Graph, logits: fx.Node, inputs: Sequence[fx.Node]) -> fx.Node:
        """Puts the loss behind the logits."""
        call, method = graph.call_function, graph.call_method
        target, labels_dims = inputs[self.target.number], len(self.shape) - 1
        for cast in self.casts:
            logits = method(cast.function.__name__, (logits, *cast.args), cast.kwargs)
        rows = call(functional.log_softmax, (method("reshape", (logits, -1, self.shape[-1])),), {"dim": 1})
        labels = method("new_full", (target, self.shape[:-1], self.ignored))
        part = call(_getitem, (labels, tuple(index for dim, index in _slices(self.cut, len(self.shape)) if dim < labels_dims)))
        method("copy_", (part, method("view", (target, self.kept[:-1]))))
        labels = method("view", (labels, -1))
        with_gradients = call(functional.nll_loss, (rows, labels), {"ignore_index": self.ignored, "reduction": self.reduction})
        column = method("unsqueeze", (method("clamp", (labels,), {"min": 0}), 1))
        numbers = call(torch.gather, (method("detach", (rows,)), 1, column))
        kept = call(_getitem, (method("view", (numbers, *self.shape[:-1], 1)), self.cut))
        zeros = call(torch.zeros_like, (target,))
        zeros = method("masked_fill", (zeros, call(torch.eq, (target, self.ignored)), _IGNORED))
        exact = call(functional.nll_loss, (method("reshape", (kept, -1, 1)), zeros), {"reduction": self.reduction})
        more = call(torch.sub, (exact, method("detach", (with_gradients,))))
        return call(torch.add, (with_gradients, call(torch.nan_to_num, (more,), {"nan": 0.0})))


def _getitem(tensor: Tensor, index: Any) -> Tensor:
    return tensor[index]


def _casts(path: Sequence[Then]) -> list[Then]:
    return [call for call in path if name_of(call.function) in _CASTS]


def _is_cut(index: Any, dims: int) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all((isinstance(part, slice) and part.step is None) or part is ... for part in parts) and all(
        dim < dims - 1 or part == slice(None) for dim, part in _slices(index, dims))


def _slices(index: Any, dims: int) -> list[tuple[int, slice]]:
    """By dimension, without the dots."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if ... in parts:
        at = parts.index(...)
        parts[at:at + 1] = [slice(None)] * (dims - len(parts) + 1)
    return list(enumerate(parts))


def _is_plain(loss: Then) -> bool:
    """Cross entropy with labels of rows and no more than that."""
    kwargs = loss.kwargs
    return (loss.function is functional.cross_entropy and len(loss.args) == 1 and isinstance(loss.args[0], Input)
            and not loss.autocast and kwargs.get("weight") is None and kwargs.get("size_average") is None
            and kwargs.get("reduce") is None and not kwargs.get("label_smoothing")
            and kwargs.get("reduction", "mean") in ("mean", "sum"))
