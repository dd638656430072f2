"""What tracing and the cache have to know of Inductor."""

from __future__ import annotations

from typing import Any

from torch._functorch import config as functorch_config

from . import internals


def decompositions() -> dict[Any, Any]:
    """Operators that Inductor takes apart before it lowers a graph, and into what."""
    table: dict[Any, Any] = internals.select_decomp_table()
    return table


def known_decompositions() -> list[Any]:
    """The code that takes operators apart; none before Inductor was imported, when nobody can have changed any."""
    return list(internals.decompositions.values()) if internals.is_imported("decompositions") else []


def configuration() -> str:
    """A digest of the user's settings that the generated kernels depend on."""
    return f"{internals.config.get_hash().hex()} {functorch_config.get_hash().hex()}"
