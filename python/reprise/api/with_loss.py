"""A loss that is not part of the model, captured with the step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


class WithLoss:
    """Calls a model with the first of its arguments, and a loss with what it returns and the others."""

    def __init__(self, model: Callable[..., Any], loss: Callable[..., Any]) -> None:
        targets = self.targets = _number_of_targets(loss)

        def call(*args: Any, **kwargs: Any) -> Any:
            split = len(args) - targets
            return loss(model(*args[:split], **kwargs), *args[split:])

        self.call = call

    def check(self, args: tuple[Any, ...]) -> None:
        if len(args) < self.targets:
            raise TypeError(f"the loss takes {self.targets} targets after what the model returns: call the model with its own "
                            f"arguments and then with these, by position; it got {len(args)} arguments")


def _number_of_targets(loss: Callable[..., Any]) -> int:
    """How many arguments a loss needs beside what the model returns."""
    if not callable(loss):
        raise TypeError(f"loss={loss!r}: give a function of what the model returns and of targets")
    parameters = inspect.signature(loss.forward if isinstance(loss, torch.nn.Module) else loss).parameters.values()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        raise ValueError("loss: how many targets it takes cannot be told from a function with *arguments; wrap it: "
                         "loss=lambda output, target: ...")
    count = sum(p.kind in by_position and p.default is inspect.Parameter.empty for p in parameters)
    if count == 0:
        raise ValueError("loss: it takes no argument for what the model returns")
    return count - 1
