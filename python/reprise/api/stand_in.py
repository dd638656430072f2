"""A tensor that stands for an output of a model that has not run yet.

It has the shape, the dtype and the device of the output, and no memory. Row operations on logits (views, cuts, casts)
give another one, a loss of them runs the model together with the loss, and every other use runs the model as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map_only

from ..errors import Unsupported
from ..trace.head import ROW_OPERATIONS, Input, Then, name_of

LOSSES = (functional.cross_entropy, functional.nll_loss)

# What can be asked of a tensor without looking at its numbers.
_FACTS = frozenset({
    "shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn",
    "is_nested", "requires_grad", "itemsize", "nbytes", "size", "dim", "numel", "nelement", "stride", "is_contiguous",
    "element_size", "is_floating_point", "is_complex", "is_signed", "len", "get_device", "ndimension", "hash", "is_inference"})
_NUMBERS = (int, float, str, bool, type(None), torch.dtype, torch.memory_format, type(...))


class Call(Protocol):
    """A call of a model that may not have run yet."""

    device: torch.device
    is_pending: bool
    logits_position: int  # among the outputs

    def has_loss(self, position: int) -> bool:
        """Whether this output was not made, because the loss was computed together with it."""

    def loss(self, logits: StandIn, then: Then, inputs: list[Tensor]) -> Tensor:
        """The loss of the logits, for which the model runs."""

    def real(self, position: int, use: str) -> Any:
        """An output. use: what asks for it."""


class StandIn(Tensor):
    """An output of a call that has not run, or what row operations make of it."""

    call: Call
    position: int  # of the output
    parent: StandIn | None
    then: Then | None  # what was done with the parent
    known: Tensor | None  # the tensor itself, once it is there

    @staticmethod
    def of(call: Call, position: int, like: Tensor, parent: StandIn | None = None,
           then: Then | None = None) -> StandIn:
        """like: a tensor without memory."""

        def make() -> Tensor:
            made = Tensor._make_wrapper_subclass(
                StandIn, like.shape, strides=like.stride(), dtype=like.dtype, device=call.device)
            made.call, made.position, made.parent, made.then, made.known = call, position, parent, then, None
            return made

        return without_way_back(make, _UNSEEN) if like.requires_grad else make()  # type: ignore[return-value]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        owner = getattr(func, "__self__", None)
        name = getattr(owner, "__name__", "") if getattr(func, "__name__", "") == "__get__" else name_of(func)
        if name in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        first = args[0] if args and isinstance(args[0], StandIn) else None
        if first is not None and first._goes_on((args[1:], kwargs)):
            if func in LOSSES:
                return first.call.loss(first, *_with_inputs(func, args[1:], kwargs))
            if name in ROW_OPERATIONS and _are_numbers((args[1:], kwargs)):
                next_one = first._then(Then(func, tuple(args[1:]), kwargs))
                if next_one is not None:
                    return next_one
        if name in ("register_hook", "retain_grad") and first is not None and first.call.has_loss(first.position):
            raise Unsupported(f"logits.{name}(): the loss was computed without its logits, which have no gradient of their own "
                              "then. Call it before the loss, or compile the model without defer_logits")
        with torch.inference_mode(False):
            args, kwargs = tree_map_only(StandIn, lambda tensor: tensor.made_real(name), (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Code that calls operators without asking for __torch_function__, such as that of extensions."""
        args, kwargs = tree_map_only(StandIn, lambda tensor: tensor.made_real(str(func)), (args, kwargs or {}))
        return func(*args, **kwargs)

    def _goes_on(self, others: Any) -> bool:
        """Whether a function of this tensor can be put off together with it."""
        return (self.call.is_pending and self.position == self.call.logits_position and torch.is_grad_enabled()
                and self.known is None and not any(isinstance(leaf, StandIn) for leaf in tree_leaves(others)))

    def _then(self, then: Then) -> StandIn | None:
        """What a row operation makes of this; None if that is not a tensor of the same device."""
        with torch._C.DisableTorchFunctionSubclass():
            here = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="meta")
        if any(isinstance(leaf, (torch.device, str)) for leaf in tree_leaves((then.args, then.kwargs))):
            return None
        made = then.function(here, *then.args, **then.kwargs)
        return StandIn.of(self.call, self.position, made.requires_grad_(), self, then)

    def path(self) -> list[Then]:
        """The operations from the output to here."""
        before = [] if self.parent is None else self.parent.path()
        return before if self.then is None else [*before, self.then]

    def made_real(self, use: str) -> Tensor:
        """The tensor itself. use: what asks for it, for the log."""
        if self.known is None:
            if self.parent is None:
                self.known = self.call.real(self.position, use)
            else:
                assert self.then is not None  # what has a parent was made of it
                with torch.enable_grad():
                    self.known = self.then.function(self.parent.made_real(use), *self.then.args, **self.then.kwargs)
        return self.known


def _are_numbers(values: Any) -> bool:
    return all(isinstance(leaf, _NUMBERS) or (isinstance(leaf, slice) and _are_numbers((leaf.start, leaf.stop, leaf.step)))
               for leaf in tree_leaves(values))


def _with_inputs(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Then, list[Tensor]]:
    """A call whose tensors are inputs."""
    tensors: list[Tensor] = []

    def number(tensor: Tensor) -> Input:
        tensors.append(tensor)
        return Input(len(tensors) - 1)

    args, kwargs = tree_map_only(Tensor, number, (tuple(args), dict(kwargs)))
    return Then(func, args, kwargs), tensors


class _NoWayBack(torch.autograd.Function):
    """Makes a tensor that requires a gradient and refuses it: a gradient that went nowhere would go unnoticed."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, make: Callable[[], Tensor], message: str) -> Tensor:
        ctx.message = message
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise Unsupported(ctx.message)


def without_way_back(make: Callable[[], Tensor], message: str) -> Tensor:
    """A tensor through which no gradient can go; backward says why."""
    with torch.inference_mode(False), torch.enable_grad():
        return _NoWayBack.apply(torch.empty(0, requires_grad=True), make, message)  # type: ignore[no-any-return, no-untyped-call]


_UNSEEN = ("logits of a model with defer_logits=True were passed to code that differentiates by itself, such as a "
           "torch.autograd.Function, before they were there. Pass logits.clone(), or compile the model without defer_logits")
