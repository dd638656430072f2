"""Models whose parameters are distributed over processes (DTensors), by parallelize_module or reprise.shard.

Such a model communicates within the step, so every process has to run the same plan, or none. They agree on it at every call
of the model, and at every backward they ask one another whether all can go on (runtime/session/session_together.cc). This is
what they say it with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from ..errors import RepriseError, Unsupported
from ..local_tensors import is_distributed
from ..native import _torch
from .ranks import Ranks


class Agreed(Exception):
    """An error that all processes have heard of. Nobody may try again in another way, as with errors of this process alone:
    the others would not take part."""

    def __init__(self, error: RepriseError) -> None:
        super().__init__(str(error))
        self.error = error


class TensorParallel:
    """The processes that have parts of one model's parameters."""

    def __init__(self, ranks: Ranks, members: frozenset[int]) -> None:
        self._ranks, self._members = ranks, members
        self._is_awaited = False  # the others wait for a word of this process
        self._turns = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Around a call of the model or its backward: an error before the step runs is raised in all processes. Where the step
        waits for a process that is not there, the error names it."""
        self._is_awaited = True
        try:
            with self._ranks.absence_named():
                yield
        except Agreed as agreed:
            raise agreed.error from None
        except Exception as error:
            if self._is_awaited:
                self._ranks.agree(error)
            raise
        finally:
            self._is_awaited = False

    def for_session(self, groups: Sequence[str]) -> _torch.Together:
        """What a step that communicates in these groups needs."""
        for group in groups:
            members = dist.get_process_group_ranks(torch._C._distributed_c10d._resolve_process_group(cast(Any, group)))
            if not self._members.issuperset(members):
                raise Unsupported(f"the model communicates with ranks {sorted(set(members) - self._members)}, which have no part "
                                  "of its parameters: distribute all parameters over one mesh with all of these ranks")
        return _torch.Together(self._ranks.rank == 0, self._least, self._of_first, self._settled)

    def _least(self, numbers: list[int]) -> list[int]:
        with _agreed():
            return self._ranks.agree(None, numbers)

    def _of_first(self, text: str) -> str:
        with _agreed():
            return self._ranks.told_by(0, text)

    def _settled(self) -> int:
        self._is_awaited = False
        self._turns += 1
        return self._turns


@contextlib.contextmanager
def _agreed() -> Iterator[None]:
    try:
        yield
    except RepriseError as error:
        raise Agreed(error) from error


def tensor_parallel(model: torch.nn.Module) -> TensorParallel | None:
    """None if no parameter is distributed."""
    meshes = _meshes(model)
    if not meshes:
        return None
    members = {tuple(sorted(mesh.mesh.flatten().tolist())) for mesh in meshes}
    if len(members) > 1:
        raise Unsupported("the model's parameters are distributed over different ranks "
                          f"({' and '.join(map(str, sorted(members)))}): use one mesh for all of them")
    ranks = list(members.pop())
    flat = next((mesh for mesh in meshes if mesh.ndim == 1), None)
    group = dist.new_group(ranks, backend=dist.Backend.GLOO, use_local_synchronization=True) if flat is None else flat.get_group()
    return TensorParallel(Ranks(group), frozenset(ranks))


def check_optimizer(optimizer: torch.optim.Optimizer | None, model: torch.nn.Module) -> None:
    if optimizer is None:
        return
    trained = {p for group in optimizer.param_groups for p in group["params"]}
    if trained.isdisjoint(model.parameters()):
        raise ValueError("the optimizer has none of the model's parameters: make it after reprise.shard or parallelize_module, "
                         "which put others in their place")


def refuse_distributed(model: torch.nn.Module, what: str) -> None:
    if _meshes(model):
        raise Unsupported(f"{what} does not take a model with distributed parameters (DTensor) yet: give it the model before "
                          "reprise.shard, parallelize_module or fully_shard")


def _meshes(model: torch.nn.Module) -> list[Any]:
    held: list[Any] = [tensor for tensor in (*model.parameters(), *model.buffers()) if is_distributed(tensor)]
    return [tensor.device_mesh for tensor in held]
