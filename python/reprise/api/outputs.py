"""What a planned step returns to autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_VIEWS_OF_OUTPUTS = 4  # that AOTAutograd may put between its function and an output


def without_zeros(outputs: Any) -> None:
    """Tells autograd not to make zeros for outputs that the loss leaves out: they are as large as
    the outputs, and Reprise can do without."""
    for output in tree_leaves(outputs):
        node = output.grad_fn if isinstance(output, torch.Tensor) else None
        for _ in range(_VIEWS_OF_OUTPUTS):
            if node is None or node.name() == "CompiledFunctionBackward":
                break
            node = node.next_functions[0][0] if node.next_functions else None
        if node is not None and node.name() == "CompiledFunctionBackward":
            node.set_materialize_grads(False)  # type: ignore[attr-defined]
