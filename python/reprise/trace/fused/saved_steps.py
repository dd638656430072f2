"""Lowered steps in the cache.

A step is found by everything that its kernels depend on: the joint graph, the device, torch, Inductor's settings and
this package's own lowering. A later process that traces the same step reads its launches and finds the kernels in files;
it neither imports Inductor's compiler nor tunes a kernel.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from ...native import _torch
from ..nodes import scope_of
from . import internals
from .lowered import CompiledStep, Form
from .settings import configuration

log = logging.getLogger("reprise")

_LARGEST_CONSTANT = 1 << 20  # bytes, of tensors that belong to the graph


def compiled_step(joint: fx.GraphModule, joint_inputs: Any, num_forward_outputs: int, device: torch.device,
                  form: Form) -> CompiledStep:
    """The step from the cache; otherwise it is lowered, compiled and saved there."""
    name = _name(joint, num_forward_outputs, device, form)
    found = None if name is None else read(name)
    if found is not None:
        return found
    internals.check()
    from . import inductor, kernel_files  # importing Inductor takes long

    made = kernel_files.compiled(inductor.lower_step(joint, joint_inputs, num_forward_outputs, form), device)
    if name is not None:
        _keep(name, made)
    return made


def _name(joint: fx.GraphModule, num_forward_outputs: int, device: torch.device, form: Form) -> str | None:
    """The name of the step's file, or None if something in the graph cannot be identified by a text."""
    digest = hashlib.sha256()
    around = (_torch.environment(device), device, torch.__version__, configuration(), _own_code(), num_forward_outputs,
              form.partition, sorted(form.absent))
    digest.update(f"{around}\n".encode())
    for node in joint.graph.nodes:
        line = _described(joint, node)
        if line is None:
            log.info("the lowered step is not saved in the cache: %s cannot be identified by a text", node)
            return None
        digest.update(f"{line}\n".encode())
    return f"steps/{digest.hexdigest()}.pickle"


def _own_code() -> str:
    """A digest of the code that lowers steps and of what is saved of them."""
    digest = hashlib.sha256()
    for module in ("inductor", "internals", "kernel_files", "lowered"):
        digest.update(Path(__file__).with_name(f"{module}.py").read_bytes())
    return digest.hexdigest()


def _described(joint: fx.GraphModule, node: fx.Node) -> str | None:
    """Everything about a node that its lowering may depend on. Tensors follow from those of the inputs."""
    text = f"{node.name} {node.op} {node.target} {node.args} {node.kwargs} {scope_of(node)} {node.meta.get('recompute')}"
    if node.op == "placeholder":
        text += f" {_layout(node.meta.get('val'))}"
    elif node.op == "get_attr":
        constant = getattr(joint, str(node.target), None)
        if not isinstance(constant, torch.Tensor) or constant.untyped_storage().nbytes() > _LARGEST_CONSTANT:
            return None
        text += f" {_layout(constant)} {hashlib.sha256(bytes(constant.cpu().untyped_storage())).hexdigest()}"
    elif node.op == "call_function" and not _is_known(node):
        return None
    return None if " object at 0x" in text else text


def _is_known(node: fx.Node) -> bool:
    leaves = tree_leaves((node.args, node.kwargs))
    return (isinstance(node.target, OpOverload) or getattr(node.target, "__module__", None) in ("_operator", "operator")) and all(
        leaf is None or isinstance(leaf, _PLAIN) for leaf in leaves)


_PLAIN = (fx.Node, bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _layout(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.storage_offset()} {value.device}"


# -- Files.


class _Pickler(pickle.Pickler):
    """Writes what torch gives no way to pickle by its name."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, OpOverload):
            return _operator, (thing._schema.name, thing._overloadname)
        if isinstance(thing, (torch.layout, torch.memory_format)):
            return _of_torch, (str(thing).removeprefix("torch."),)
        return NotImplemented


def _operator(name: str, overload: str) -> Any:
    namespace, _, packet = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _of_torch(name: str) -> Any:
    return getattr(torch, name)


def _keep(name: str, step: CompiledStep) -> None:
    forward, backward = (replace(side, kernels={}) for side in (step.lowered.forward, step.lowered.backward))  # no sources
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(replace(step, lowered=replace(step.lowered, forward=forward, backward=backward)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        log.info("the lowered step is not saved in the cache: %s", error)
        return
    _torch.write_cache(name, stream.getvalue())


def read(name: str) -> CompiledStep | None:
    text = _torch.read_cache(name)
    if text is None:
        return None
    try:
        step = pickle.loads(text)
        if not isinstance(step, CompiledStep):
            raise TypeError(f"it holds a {type(step).__name__}, not a step")
        missing = list(_missing(step))
    except Exception as error:  # whatever a broken file may raise
        _torch.refuse_cache(name, f"{type(error).__name__}: {error}")
        return None
    if missing:
        _torch.refuse_cache(name, f"its kernels are gone: {missing[0]}")
        return None
    return step


def _missing(step: CompiledStep) -> Iterator[str]:
    folder = Path(_torch.kernel_folder())
    return (file for file in step.files if not (folder / file).exists())
