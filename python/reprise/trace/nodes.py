"""Nodes of a traced graph: where they come from, and which of them cannot be planned."""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from ..errors import Unsupported

aten = torch.ops.aten


def scope_of(node: fx.Node) -> str:
    """The user's name of the module a node comes from: layer3.5.conv2."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    path = re.sub(r"\._modules\['([^']*)'\]", r".\1", path)
    path = re.sub(r"\[['\"]?([^'\"\]]*)['\"]?\]", r".\1", re.sub(r"^L\['[^']*'\](\.__self__)?", "", path))
    return path.lstrip(".")


def check_supported(node: fx.Node) -> None:
    if node.target is operator.getitem:
        return
    if node.target is torch.ops.higher_order.with_effects and node.args[1] is aten._linalg_check_errors.default:
        name = f"torch.linalg.{str(node.args[3]).rpartition('.')[2]}"
        raise Unsupported(f"{name}{_where(node)}, called by the model or by an operator of it, looks whether it went well, which "
                          f"no plan foresees; use {name}_ex, which does not look")
    if not isinstance(node.target, OpOverload):
        raise Unsupported(f"cannot plan over {node.target}{_where(node)}: it is not an operator of PyTorch. Register it as a "
                          "custom operator, or move it out of the model")
    if node.target is aten._local_scalar_dense.default:
        raise Unsupported(
            f"the model reads a number out of a tensor (.item(), int(), bool()){_where(node)}; keep it "
            "a tensor, or compute it outside the model")


def check_size(node: fx.Node, result: Any) -> None:
    if any(free_unbacked_symbols(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)):
        raise Unsupported(f"the size of what {node.target} makes{_where(node)} depends on numbers in a tensor (x[mask], "
                          "nonzero, masked_select), so its memory is not known in advance. Use torch.where or "
                          "masked_fill, which keep the size, or move it out of the model")


def _where(node: fx.Node) -> str:
    return f" in {scope_of(node)}" if scope_of(node) else ""
