"""How Reprise calls torch.compile: what is traced, and what its errors become."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .. import switches
from ..errors import GraphBreak, RepriseError


def own_frame(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the model in a function of ours: torch.compile skips frames of torch itself, so it would
    not see hooks of the model, nor anything of a plain nn.Sequential. Every model gets a code
    object of its own, because torch.compile counts compilations by code object."""

    def step(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    step.__code__ = step.__code__.replace()
    return step


if torch.__version__ < "2.12":
    # torch.compile writes its settings as JSON into its own log, fails if they contain functions, and reports it.
    logging.getLogger("torch._dynamo.metrics_context").addFilter(
        lambda record: "logging compilation metrics" not in record.getMessage())


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Raises our errors unchanged, and turns those of torch.compile into one that says the model cannot be captured."""
    try:
        yield
    except torch._dynamo.exc.BackendCompilerFailed as error:
        if isinstance(error.inner_exception, (RepriseError, ValueError)):
            raise error.inner_exception from None
        raise _failure(error.inner_exception) from error
    except torch._dynamo.exc.InternalTorchDynamoError as error:
        raise _failure(error) from error
    except torch._dynamo.exc.FailOnRecompileLimitHit as error:
        raise RepriseError(
            f"the model was called with more than {switches.most_shapes()} different shapes of inputs that had to be captured "
            "one by one; the log of 'reprise' says why. Change that, or pad the inputs to a few sizes.") from error
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError, GuardOnDataDependentSymNode) as error:
        raise _lack_of_memory(error) or GraphBreak(
            "the model cannot be captured as one graph, which a budget for the whole step needs. Change the line "
            f"below or move it out of the model:\n{error}") from error


def _failure(error: BaseException) -> Exception:
    return _lack_of_memory(error) or GraphBreak(
        "the model cannot be captured as one graph, which a budget for the whole step needs, because torch.compile "
        f"fails:\n{type(error).__name__}: {error}")


def _lack_of_memory(error: BaseException | None) -> Exception | None:
    """The error that an allocation raised, because of which the model is not captured in another way."""
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error):
            return error if isinstance(error, Exception) else None
        error = error.__cause__ or error.__context__
    return None
