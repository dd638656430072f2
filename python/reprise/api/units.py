"""Units of fully_shard (FSDP2)."""

from __future__ import annotations

import torch


def is_unit(module: torch.nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def all_units(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in model.modules() if is_unit(module)]


def innermost_units(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Those that contain no other ones."""
    return [unit for unit in all_units(model) if all_units(unit) == [unit]]
