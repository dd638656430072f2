"""Hides from a model that it is traced, so that it runs the code that it runs in eager."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.variables import ConstantVariable, TorchInGraphFunctionVariable
from torch._dynamo.variables.torch import tracing_state_functions
from torch.utils._python_dispatch import _disable_current_modes

from .. import switches
from ..errors import Unsupported

T = TypeVar("T")


class Trace:
    """Calls what torch.compile traces, so that the model runs the code it runs in eager: a model that asks is
    told that it is not being compiled. If that code cannot be captured, for example because it looks at the
    numbers of a mask, the model runs the code that it has for torch.compile.

    config: more settings of torch.compile."""

    def __init__(self, **config: Any) -> None:
        self.ways = _Way(is_compiling=False, config=config), _Way(is_compiling=True, config=config)

    def __call__(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        handled = sys.exc_info()[1]  # an exception that the caller is handling and may still use
        try:
            with self.ways[0]:
                return call(*args, **kwargs)
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError, Unsupported) as error:
            refusal: Exception = error
            forget(error, handled)
        except BackendCompilerFailed as error:
            if not isinstance(error.inner_exception, Unsupported):
                raise
            refusal = error
            forget(error, handled)
        try:
            with self.ways[1]:
                return call(*args, **kwargs)
        except torch._dynamo.exc.TorchRuntimeError as error:
            # The code for torch.compile does not work, and is not the code of eager.
            forget(error, handled)
            raise refusal from None
        finally:
            del refusal


def forget(error: BaseException | None, handled: BaseException | None) -> None:
    """Releases the frames that an error holds, and with them the caller's tensors: errors and frames
    that refer to each other would stay until the garbage collector runs."""
    while error is not None and error is not handled and error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


# Keeps add_, addcdiv_ and addcmul_ whole, which torch.compile takes apart in case one of their numbers is a tensor.
_NO_DECOMPOSITIONS: dict[str, Any] = {"enable_dynamo_decompositions": False} if hasattr(
    torch._dynamo.config, "enable_dynamo_decompositions") else {}


class _Way:
    """Settings of torch.compile: it never falls back to running the model as it is, which would silently exceed the
    budget; it notices hooks that are added and removed; it does not draw numbers of its own where a model draws
    NumPy's; and it has answers to what models ask. Models are told that they are not exported: torch.compile before
    2.13 tells them that they are, and libraries then do not run the code that eager runs.

    There is one for all steps, because each leaves a variable in the thread's context."""

    def __init__(self, is_compiling: bool, config: dict[str, Any]) -> None:
        self.config = torch._dynamo.config.patch(
            **config, fail_on_recompile_limit_hit=True, recompile_limit=switches.most_shapes(),
            accumulated_recompile_limit=1 << 20, allow_rnn=True, suppress_errors=False, use_numpy_random_stream=True,
            skip_nnmodule_hook_guards=False, **_NO_DECOMPOSITIONS,
            ignore_logging_functions=torch._dynamo.config.ignore_logging_functions | _logging_functions())
        self.answers = _COMMON_ANSWERS | dict.fromkeys(_IS_COMPILING, is_compiling)

    def __enter__(self) -> None:
        _look_at_transformers()
        self.config.__enter__()
        _here.answers.append(self.answers)

    def __exit__(self, *error: Any) -> None:
        _here.answers.pop()
        self.config.__exit__(*error)


class _Here(threading.local):
    """The answers that this thread gives now. Other threads are not affected."""

    def __init__(self) -> None:
        self.answers: list[dict[Any, bool]] = []


_here = _Here()


def _logging_functions() -> set[Any]:
    """Log calls inside a model are not a reason to refuse it. Libraries add logging methods of their own."""
    names = ("debug", "info", "error", "critical", "exception", "log", "info_once", "warning_advice", "warning",
             "warning_once")
    return {getattr(logging.Logger, name) for name in names if hasattr(logging.Logger, name)}


# -- Questions that models ask, and our own questions inside them. In eager they are ordinary functions.


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def goes_as_eager() -> bool:
    """Whether Reprise traces this."""
    return False


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _is_one_sequence(position_ids: Tensor) -> bool:
    return False


_IS_COMPILING = tuple(question for question in tracing_state_functions() if question.__name__ == "is_compiling")
_COMMON_ANSWERS: dict[Any, bool] = {
    torch.compiler.is_exporting: False, torch.cuda.is_current_stream_capturing: False, goes_as_eager: True}


def _answer_first(question: Any, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    def handler(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if _here.answers and not args and not kwargs:
            return ConstantVariable.create(_here.answers[-1][question])
        return None if otherwise is None else otherwise(self, tx, *args, **kwargs)

    return handler


def _answer_no(*_: Any) -> Any:
    return ConstantVariable.create(False)


def _answer_one_sequence(_: Any, __: Any, position_ids: Any) -> Any:
    return ConstantVariable.create(bool(_here.answers) and _counts_by_one(position_ids.proxy.node))


def _whole(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps an operator whole that torch.compile takes apart in case one of its numbers is a tensor."""

    def handler(self: Any, tx: Any, *args: Any, value: Any = None, **kwargs: Any) -> Any:
        if _here.answers and isinstance(value, ConstantVariable):
            return None
        return otherwise(self, tx, *args, **(kwargs if value is None else kwargs | {"value": value}))

    return handler


_handlers = TorchInGraphFunctionVariable._get_handlers()
_handlers[goes_as_eager] = _answer_no
_handlers |= {question: _answer_first(question, _handlers.get(question)) for question in (*_IS_COMPILING, *_COMMON_ANSWERS)}
_handlers[_is_one_sequence] = _answer_one_sequence
if torch.addcdiv in _handlers:
    _handlers[torch.addcdiv] = _whole(_handlers[torch.addcdiv])


# -- Masks of transformers. Its models check whether there is padding, and whether positions are those of one
# sequence; if a mask is not needed, they make none. When they are traced they do not check and always make one, for
# which attention has other and slower kernels. Absent padding and positions that the model made itself are known
# without looking at numbers.


def _look_at_transformers() -> None:
    """Replaces two functions of transformers once it is imported. Outside of our tracing they do the same as before."""
    module: Any = sys.modules.get("transformers.masking_utils")
    if module is None or getattr(module, "find_packed_sequence_indices", None) is _find_packed_sequence_indices:
        return
    if hasattr(module, "find_packed_sequence_indices") and hasattr(module, "is_tracing"):
        _Transformers.find_packed_sequence_indices = staticmethod(module.find_packed_sequence_indices)
        _Transformers.is_tracing = staticmethod(module.is_tracing)
        module.find_packed_sequence_indices, module.is_tracing = _find_packed_sequence_indices, _is_tracing


def install_hooks(model: torch.nn.Module, refusal: str) -> bool:
    """A model of transformers that returns more than its last result (hidden states, router logits) installs hooks in its
    first call, under a lock that torch.compile cannot trace. If that is what was refused, this installs them as the model
    would. Returns whether there was something to install."""
    module: Any = sys.modules.get("transformers.utils.output_capturing")
    if module is None or "maybe_install_capturing_hooks" not in refusal:
        return False
    library: Any = sys.modules["transformers.modeling_utils"]
    models = [each for each in model.modules() if isinstance(each, library.PreTrainedModel)]
    if any(getattr(each, "_output_capturing_hooks_installed", False) for each in models):
        return False  # a part has them, and would get them twice
    inner = {id(part) for each in models for part in each.modules() if part is not each}
    for each in models:
        if id(each) not in inner:
            module.maybe_install_capturing_hooks(each)
    return bool(models)


class _Transformers:
    """The functions that transformers itself has."""

    find_packed_sequence_indices: Callable[[Tensor], Tensor | None]
    is_tracing: Callable[..., bool]


def _find_packed_sequence_indices(position_ids: Tensor) -> Tensor | None:
    return None if _is_one_sequence(position_ids) else _Transformers.find_packed_sequence_indices(position_ids)


def _is_tracing(tensor: Tensor | None = None) -> bool:
    if tensor is None and goes_as_eager():
        return False
    return _Transformers.is_tracing(tensor)


# -- What is known while a model is traced.

MAX_NODES = 64
MAX_NUMBERS = 1 << 20


def _counts_by_one(node: fx.Node) -> bool:
    """Whether rows of positions go up by one and depend on no number in an input and on no random number."""
    if _goes_up_by_one(node):
        return True
    before = torch.get_rng_state()
    try:
        with _disable_current_modes():
            steps = _computed(node, {}).diff(dim=-1)
            return bool((steps == 1).all()) and torch.equal(before, torch.get_rng_state())
    except Exception:  # if it cannot be computed, it is not known
        return False
    finally:
        torch.set_rng_state(before)


def _goes_up_by_one(node: Any) -> bool:
    """Whether this follows from how rows are made, at any size: a range, shifted by a number and seen as rows."""
    made = _example(node)
    if not isinstance(node, fx.Node) or not isinstance(made, Tensor) or made._version != 0 or (
            made.dtype not in (torch.int64, torch.int32)):
        return False
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    if name == "arange":
        return node.op == "call_function" and len(node.args) <= 2 and set(node.kwargs) <= {"device", "dtype"}
    if not node.args:
        return False
    source = node.args[0]
    if name in ("add", "sub"):
        return _goes_up_by_one(source) and not isinstance(_example(node.args[-1]), Tensor) and not node.kwargs
    keeps = name in ("unsqueeze", "expand", "view", "reshape", "to", "long", "contiguous", "clone")
    before = _example(source)
    same_rows = isinstance(before, Tensor) and before.dim() > 0 and _expression(before.shape[-1]) == _expression(made.shape[-1])
    return keeps and same_rows and _goes_up_by_one(source)


def _example(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, fx.Node) else value


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _computed(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """The result of a node, computed on the CPU."""
    if node in known:
        return known[node]
    example = node.meta.get("example_value")
    if node.op not in ("call_function", "call_method") or len(known) >= MAX_NODES or (
            isinstance(example, Tensor) and (example._version != 0 or example.numel() > MAX_NUMBERS)):
        raise ValueError(node)  # it is an input, too large, or written to afterwards

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return _computed(value, known)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), argument)
    kwargs = {name: "cpu" if name == "device" else value for name, value in kwargs.items()}
    target: Any = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
    known[node] = target(*(args[1:] if node.op == "call_method" else args), **kwargs)
    return known[node]
