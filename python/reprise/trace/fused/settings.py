"""What tracing and the cache have to know of Inductor. Importing the compiler itself takes more than a second."""

from __future__ import annotations

from typing import Any

from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config


def decompositions() -> dict[Any, Any]:
    """Operators that Inductor takes apart before it lowers a graph, and into what."""
    import torch._inductor.lowering  # noqa: F401  the decomposition of max pooling looks into it and does not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def configuration() -> str:
    """A digest of the user's settings that the generated kernels depend on."""
    return f"{inductor_config.get_hash().hex()} {functorch_config.get_hash().hex()}"
