"""What a model hears of being traced, so that it takes the way it takes in eager."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.variables import ConstantVariable, TorchInGraphFunctionVariable
from torch._dynamo.variables.torch import tracing_state_functions
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

MAX_SHAPES = 64  # different shapes of inputs one model may be called with


class Trace:
    """Calls what torch.compile traces, by the way that the model takes in eager: to models that ask, it is
    not compiled. Where that way cannot be traced, as it looks at the numbers of a mask, say, by the
    way that the model has for torch.compile."""

    def __init__(self) -> None:
        self.ways = _Way(is_compiling=False), _Way(is_compiling=True)

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self.ways[0]:
                return call(*args, **kwargs)
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
            _forget(error)
        with self.ways[1]:
            return call(*args, **kwargs)


def _forget(error: BaseException | None) -> None:
    """Lets go of the frames an error holds, and with them of the caller's tensors: errors and frames
    that name each other wait for the garbage collector."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


class _Way:
    """Never falls back to running the model as it is: that would exceed the budget silently; sees
    hooks that come and go; and answers what models ask. They are never exported, which torch.compile
    before 2.13 says, and for which libraries leave the way that eager takes.

    One for all steps: each leaves a variable in the thread's context."""

    def __init__(self, is_compiling: bool) -> None:
        self.config = torch._dynamo.config.patch(
            fail_on_recompile_limit_hit=True, recompile_limit=MAX_SHAPES,
            accumulated_recompile_limit=1 << 20, allow_rnn=True, suppress_errors=False,
            skip_nnmodule_hook_guards=False,
            ignore_logging_functions=torch._dynamo.config.ignore_logging_functions | _logging_functions())
        self.answers = {torch.compiler.is_exporting: False, torch.compiler.is_compiling: is_compiling,
                        torch.cuda.is_current_stream_capturing: False}
        self.before: list[Any] = []

    def __enter__(self) -> None:
        answers, handlers = tracing_state_functions(), TorchInGraphFunctionVariable._get_handlers()
        answer = handlers[torch.compiler.is_exporting]
        self.before.append([_put(answers, self.answers), _put(handlers, dict.fromkeys(self.answers, answer)),
                            _put(_masks(), _EAGER_MASKS)])
        self.config.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.config.__exit__(*error)
        for place, before in self.before.pop():
            for key, value in before.items():
                if value is _ABSENT:
                    del place[key]
                else:
                    place[key] = value


_ABSENT = object()


def _put(place: dict[Any, Any], items: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    before = {key: place.get(key, _ABSENT) for key in items}
    place.update(items)
    return place, before


def _logging_functions() -> set[Any]:
    """Log calls inside a model are no reason to refuse it. Libraries add methods of their own."""
    names = ("debug", "info", "error", "critical", "exception", "log", "info_once", "warning_advice", "warning",
             "warning_once")
    return {getattr(logging.Logger, name) for name in names if hasattr(logging.Logger, name)}


# -- Masks of transformers. Its models look whether there is padding, and whether positions are those of one
# sequence, and make no mask then. When they are traced they do not look, and make one, for which attention has
# other and slower kernels. Padding that is absent needs no look, and positions that the model made itself are known.


def _masks() -> dict[str, Any]:
    """The names of the module that makes masks, if it is there."""
    module = sys.modules.get("transformers.masking_utils")
    if not all(hasattr(module, name) for name in _EAGER_MASKS):
        return {}
    if module.find_packed_sequence_indices is not _find_packed_sequence_indices:
        _Transformers.find_packed_sequence_indices = staticmethod(module.find_packed_sequence_indices)
    return module.__dict__


class _Transformers:
    """What it does itself."""

    find_packed_sequence_indices: Callable[[Tensor], Tensor | None]


def _find_packed_sequence_indices(position_ids: Tensor) -> Tensor | None:
    return None if _is_one_sequence(position_ids) else _Transformers.find_packed_sequence_indices(position_ids)


def _is_tracing(tensor: Tensor | None = None) -> bool:
    return tensor is not None


_EAGER_MASKS = {"find_packed_sequence_indices": _find_packed_sequence_indices, "is_tracing": _is_tracing}


@torch.compiler.allow_in_graph
def _is_one_sequence(position_ids: Tensor) -> bool:
    raise NotImplementedError("answered while a model is traced")


def _answer_one_sequence(_: Any, __: Any, position_ids: Any) -> Any:
    try:
        with _disable_current_modes():
            steps = _constant(position_ids.proxy.node).diff(dim=-1)
            return ConstantVariable.create(bool((steps == 1).all()))
    except _NotConstant:
        return ConstantVariable.create(False)


TorchInGraphFunctionVariable._get_handlers()[_is_one_sequence] = _answer_one_sequence


class _NotConstant(Exception):
    pass


def _constant(node: fx.Node) -> Any:
    """What a node computes, on the CPU, where no input and no random number has a part in it."""
    before = torch.get_rng_state()
    value = _computed(node)
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        raise _NotConstant
    return value


def _computed(node: fx.Node) -> Any:
    if node.op not in ("call_function", "call_method"):
        raise _NotConstant

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return _computed(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    args, kwargs = tree_map(argument, (tuple(node.args), dict(node.kwargs)))
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)
