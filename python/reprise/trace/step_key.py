"""What the trace of a step depends on, as a short text: a step with the same key is the same step.

The key is made of Dynamo's graph, of everything about the tensors that it reads but their contents, and of the settings,
versions and code that decide what AOTAutograd and the capture make of them. Whatever a text cannot identify has no key, and is
traced: code that is not PyTorch's own, other kinds of tensors, inputs that share memory, modes and hooks of the user.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch_config
from torch._guards import TracingContext
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import _get_qualified_name

from .. import switches
from ..native import _torch
from .autocast import autocast_now, is_within_autocast
from .fused.settings import configuration, known_decompositions
from .joint_graph import FUSED
from .nodes import scope_of
from .operators import REPEATABLE

_OWN_OPERATORS = ("aten", "prims")
_TORCH = str(Path(torch.__file__).parent) + os.sep  # torchvision has a folder beside it
_PLAIN_TENSORS = (Tensor, torch.nn.Parameter, FakeTensor)


class NoKey(Exception):
    """Why a step cannot be identified by a text."""


def step_key(gm: fx.GraphModule, inputs: Sequence[Any], engine: str, name: str) -> str:
    """Raises NoKey if something that matters has no text. engine: what of it makes other graphs; name: of the step."""
    if _children(gm):
        raise NoKey("its graph has tensors or graphs of its own")
    _check_surroundings(inputs, engine)
    digest = hashlib.sha256()
    for line in (*_versions(), engine, name, *_surroundings({t.device for t in inputs if isinstance(t, Tensor)}, engine),
                 *_inputs(inputs), *map(_described, gm.graph.nodes)):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _children(gm: fx.GraphModule) -> list[str]:
    return [name for parts in (gm._parameters, gm._buffers, gm._modules) for name in parts]


# -- What is around the step.


def _versions() -> Iterator[str]:
    yield torch.__version__
    yield str(torch.version.git_version)
    yield sys.version
    yield _own_code()


@functools.cache
def _own_code() -> str:
    """A digest of the code that makes programs, in both languages."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in (*sorted(folder.rglob("*.py")), Path(str(_torch.__file__))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _check_surroundings(inputs: Sequence[Any], engine: str) -> None:
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fakify_first_call:
        raise NoKey("torch.compile does not say how it traces")
    if any(isinstance(tensor, FakeTensor) and tensor.fake_mode is not context.fake_mode for tensor in inputs):
        raise NoKey("it reads fake tensors of somebody else")
    if torch._C._len_torch_function_stack() > 0:
        raise NoKey("a mode of torch functions is active")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise NoKey("hooks of saved tensors are active")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NoKey("a transform of torch.func is active")
    if theirs := next((name for name in sorted(torch.library._impls) if _changes_gradients(name)), None):
        raise NoKey(f"an operator of PyTorch has other code: {theirs}")
    if engine == FUSED and not all(_has_code_of_torch(getattr(code, "func", code)) for code in known_decompositions()):
        raise NoKey("an operator of PyTorch is taken apart by code that is not PyTorch's own")


def _has_code_of_torch(code: Any) -> bool:
    """Whether a decomposition, and each function that it wraps, is written in a file of PyTorch."""
    if not isinstance(code, FunctionType):
        return isinstance(code, (OpOverload, OpOverloadPacket))
    wrapped = [cell.cell_contents for cell in code.__closure__ or () if isinstance(cell.cell_contents, FunctionType)]
    return code.__code__.co_filename.startswith(_TORCH) and all(map(_has_code_of_torch, wrapped))


def _changes_gradients(name: str) -> bool:
    """Whether a name of torch.library (aten/relu/Autograd) is that of an operator's code for autograd or tracing."""
    return name.startswith("aten/") and any(key in name for key in ("Autograd", "Composite", "Functionalize"))


def _surroundings(devices: set[torch.device], engine: str) -> Iterator[str]:
    for device in sorted({*devices, torch.device("cpu")}, key=str):
        yield f"{device} {_torch.environment(device)} {autocast_now(device)} {is_within_autocast()}"
    backends = torch.backends
    yield repr([torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(),
                torch.get_default_dtype(), torch.get_default_device(), switches.splits_convolutions()])
    yield repr([torch.get_deterministic_debug_mode(), torch._C._get_deterministic_fill_uninitialized_memory()])
    yield repr(sorted(name for name in REPEATABLE if name.partition("::")[0] in _OWN_OPERATORS))  # steps with others have no key
    yield repr([backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic, backends.mkldnn.enabled,
                backends.mkldnn.deterministic, torch._C._get_nnpack_enabled(), torch.get_float32_matmul_precision()])
    yield repr([backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(),
                backends.cuda.cudnn_sdp_enabled(), backends.cuda.fp16_bf16_reduction_math_sdp_allowed(),
                torch._C._get_sdp_priority_order(), str(backends.cuda.preferred_linalg_library())])
    yield repr([backends.opt_einsum.is_available(), backends.opt_einsum.enabled, backends.opt_einsum.strategy])
    yield configuration() if engine == FUSED else functorch_config.get_hash().hex()


# -- What it reads.


def _inputs(inputs: Sequence[Any]) -> Iterator[str]:
    storages = set()
    for tensor in inputs:
        if type(tensor) not in _PLAIN_TENSORS:
            raise NoKey(f"it reads a {type(tensor).__name__}")
        if tensor.layout is not torch.strided or tensor.is_quantized or any(getattr(tensor, "names", ())):
            raise NoKey("it reads a tensor of a special kind")
        numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes())
        if any(type(number) is not int for number in numbers):
            raise NoKey("its sizes are symbols")
        storage = tensor.untyped_storage()._cdata
        if storage in storages:
            raise NoKey("two tensors that it reads share memory")
        storages.add(storage)
        yield repr([tensor.dtype, tensor.device, numbers, tensor.requires_grad, tensor.is_leaf, tensor._is_view(),
                    isinstance(tensor, torch.nn.Parameter), tensor.is_conj(), tensor.is_neg(), tensor.is_inference()])


# -- What it does.


def _described(node: fx.Node) -> str:
    text = f"{node.name} {node.op} {_text(node.args)} {_text(node.kwargs)} {scope_of(node)!r} {node.meta.get('custom')!r}"
    if node.op in ("placeholder", "output"):
        return text
    if node.op == "call_method" and isinstance(node.target, str):
        made = node.args[0].meta.get("example_value") if node.args and isinstance(node.args[0], fx.Node) else None
        if type(made) not in _PLAIN_TENSORS or not _is_torchs(getattr(Tensor, node.target, None)):
            raise NoKey(f"{node} is a method of something that is not a plain tensor")
        return f"{text} {node.target}"
    if node.op == "call_function":
        return f"{text} {_function(node.target)}"
    raise NoKey(f"{node} is a {node.op}")


def _text(value: Any) -> str:
    """The text of an argument. Equal texts mean equal arguments, of equal types."""
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if type(value) in _PLAIN:
        return f"{type(value).__name__}:{value!r}"
    if type(value) in (tuple, list, torch.Size, fx.immutable_collections.immutable_list):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        return f"dict({', '.join(f'{_text(key)}={_text(item)}' for key, item in value.items())})"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if callable(value) and not isinstance(value, type):
        return _function(value)
    raise NoKey(f"it has a {type(value).__name__} for an argument")


_PLAIN = {type(None), type(...), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format}


def _function(target: Any) -> str:
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        name = str(target)
        if name.partition(".")[0] not in _OWN_OPERATORS:
            raise NoKey(f"{name} is not an operator of PyTorch")
        return name
    name = _get_qualified_name(target) if isinstance(target, (FunctionType, BuiltinFunctionType)) else str(target)
    if not _is_torchs(target) or (isinstance(target, FunctionType) and not _is_found(target, name)):
        raise NoKey(f"{name} is not PyTorch's own code")
    return name


def _is_torchs(target: Any) -> bool:
    """Whether the code of a function follows from the version of PyTorch."""
    if isinstance(target, FunctionType):
        held = [cell.cell_contents for cell in target.__closure__ or ()]
        return target.__code__.co_filename.startswith(_TORCH) and all(type(part) in _PLAIN or _is_torchs(part) for part in held)
    if isinstance(target, (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)):
        owner = getattr(target, "__objclass__", None) or getattr(target, "__self__", None)
        module = str(getattr(target, "__module__", None) or getattr(owner, "__module__", None) or getattr(owner, "__name__", ""))
        return module.partition(".")[0] in ("torch", "_operator", "builtins", "math")
    return isinstance(target, (OpOverload, OpOverloadPacket)) and str(target).partition(".")[0] in _OWN_OPERATORS


def _is_found(target: Any, name: str) -> bool:
    """Whether a function is what its name says, and not one that somebody has made of it."""
    module, _, path = name.partition(".")
    try:
        return operator.attrgetter(path)(sys.modules[module]) is target
    except (KeyError, AttributeError):
        return False
