"""The part of a distributed tensor (DTensor) that lies in this process, which is the part that counts here."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from torch import Tensor


def is_distributed(tensor: Any) -> bool:
    """Without importing DTensor: where nobody has imported it, nobody has one."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> Any:
    return tensor._local_tensor if is_distributed(tensor) else tensor


def local_tensors(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Instead of each distributed tensor its part in this process and that of its gradient."""
    found: list[Tensor] = []
    for tensor in tensors:
        found.append(local(tensor))
        if is_distributed(tensor) and tensor.grad is not None:
            found.append(local(tensor.grad))
    return found
