"""Time of a call by what it computes and moves, where nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True)
class Rates:
    flops_per_s: float
    bytes_per_s: float
    floor_ns: int  # a call takes at least this


CPU = Rates(flops_per_s=100e9, bytes_per_s=20e9, floor_ns=2_000)
GPU = Rates(flops_per_s=210e12, bytes_per_s=4e12, floor_ns=3_000)  # an H200 in fp32 with TF32


def rates_of(device: torch.device) -> Rates:
    return CPU if device.type == "cpu" else GPU


class Roofline:
    def __init__(self, device: torch.device, rates: Rates | None = None) -> None:
        self.rates = rates or rates_of(device)

    def time_ns(self, target: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int:
        moved = sum(t.numel() * t.element_size() for t in tree_leaves((args, kwargs, out))
                    if isinstance(t, torch.Tensor))
        seconds = max(moved / self.rates.bytes_per_s,
                      self._flops(target, args, kwargs, out) / self.rates.flops_per_s)
        return max(int(seconds * 1e9), self.rates.floor_ns)

    @staticmethod
    def _flops(target: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int:
        count = flop_registry.get(target.overloadpacket)
        if count is None:
            return 0
        if target.overloadpacket.__name__.startswith("_scaled_dot_product"):
            args = _with_all_heads(args, 1 if "backward" in target.overloadpacket.__name__ else 0)
        return count(*args, **kwargs, out_val=out)


def _with_all_heads(args: Sequence[Any], first: int) -> list[Any]:
    """Attention whose queries share keys and values computes as much as one where each has its own."""
    heads = args[first].shape[1]
    shared = [t[:, :1].expand(-1, heads, -1, -1) for t in args[first + 1:first + 3]]
    return [*args[:first + 1], *shared, *args[first + 3:]]
