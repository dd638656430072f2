"""The only module that imports Inductor, whose internals change with every version of torch.

A name is looked up when it is used for the first time, because importing the compiler takes more than a second and a step from
the cache does not need it. `check` looks for all of them before a step is lowered.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch

from ...errors import Unsupported

# What is set while Inductor lowers a step. Memory is Reprise's: no buffer is reused or written over by Inductor's choice, and
# nothing is split or recorded. Reductions over rows and columns stay kernels of their own: in one kernel with a sum after it,
# GPT-2 medium took 3 to 6 % longer on an H200, and ConvNeXt-B 1 % less.
SETTINGS: Mapping[str, Any] = {
    "inplace_buffers": False, "allow_buffer_reuse": False, "fx_graph_cache": False, "size_asserts": False,
    "alignment_asserts": False, "nan_asserts": False, "triton.cudagraphs": False,
    "triton.store_cubin": True, "triton.mix_order_reduction": False, "memory_planning": False}

NAMES: Mapping[str, tuple[str, ...]] = {
    "torch._inductor": ("config",),
    "torch._inductor.async_compile": ("AsyncCompile",),
    "torch._inductor.codecache": ("CppCodeCache",),
    "torch._inductor.codegen.cpp": ("CppScheduling",),
    "torch._inductor.codegen.wrapper": (
        "AllocateLine", "CommentLine", "EnterDeviceContextManagerLine", "ExitDeviceContextManagerLine",
        "ExternKernelAllocLine", "ExternKernelOutLine", "FreeIfNotReusedLine", "FreeLine", "IndexPutFallbackLine",
        "KernelCallLine", "KernelDefinitionLine", "MultiOutputLine", "PythonWrapperCodegen", "ReinterpretLine",
        "ScatterFallbackLine", "UnbackedSymbolDefsLine"),
    "torch._inductor.compile_fx": (
        "_recursive_joint_graph_passes", "_recursive_post_grad_passes", "fake_tensor_prop", "record_original_output_strides"),
    "torch._inductor.cpu_vec_isa": ("pick_vec_isa",),
    "torch._inductor.debug": ("DebugContext",),
    "torch._inductor.decomposition": ("decompositions", "select_decomp_table"),
    "torch._inductor.fx_passes.post_grad": ("view_to_reshape",),
    "torch._inductor.graph": ("GraphLowering",),
    "torch._inductor.ir": (
        "IRNode", "MultiOutputLayout", "MutationLayoutSHOULDREMOVE", "NonOwningLayout", "NoneAsConstantBuffer", "NoneLayout",
        "ReinterpretView", "ShapeAsConstantBuffer", "StorageBox", "TensorBox"),
    "torch._inductor.scheduler": ("SchedulerNode",),
    "torch._inductor.utils": ("LineContext", "ValueWithLineMap"),
    "torch._inductor.virtualized": ("V",),
}
_MODULE_OF = {name: module for module, names in NAMES.items() for name in names}
# The decomposition of max pooling looks into a module that it does not import.
_BEFORE = {"select_decomp_table": "torch._inductor.lowering"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"{name!r} is not among the names that are taken from Inductor")
    if name in _BEFORE:
        importlib.import_module(_BEFORE[name])
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def is_imported(name: str) -> bool:
    """Whether somebody has imported the module that has the name."""
    return _MODULE_OF[name] in sys.modules


def _is_there(module: str, name: str) -> bool:
    try:
        attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return True


def missing() -> list[str]:
    """Names and settings that the installed torch lacks."""
    needed = [(module, name) for module, names in NAMES.items() for name in names]
    needed += [("torch._inductor.config", setting) for setting in SETTINGS]
    return [f"{module}.{name}" for module, name in needed if not _is_there(module, name)]


def check() -> None:
    if lacking := missing():
        raise Unsupported(f"torch {torch.__version__} does not have {', '.join(lacking)}, from which the fused engine makes "
                          'kernels. Use engine="eager", or another version of torch: 2.11 and 2.13 are known to have all of it')
