"""Operators that torch takes apart when it traces, kept whole as eager runs them.

For some operators torch registers kernels in Python that are used only under AOTAutograd. For example, resizing
becomes gathers and scatters, which round differently from the operator and take longer.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

_OTHERS = {"hardshrink", "softshrink", "multi_margin_loss"}
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_lock = threading.RLock()


@functools.cache
def _operators() -> list[OpOverload]:
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and ("upsample_" in packet or packet in _OTHERS):
            found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """While this is active, all threads trace these operators as eager runs them."""
    with _lock, contextlib.ExitStack() as restored:
        for operator in _operators():
            taken = {key: operator.py_kernels.pop(key) for key in _KEYS if key in operator.py_kernels}
            restored.callback(_put_back, operator, taken)
            operator._dispatch_cache.clear()  # what it has looked up before
        yield


def _put_back(operator: OpOverload, kernels: dict[DispatchKey, Any]) -> None:
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
