"""Processes that train together: an error in one of them is raised in all.

A process that ends with an error would leave the others waiting for what it had to send, so all of them ask one another.
Messages lie in memory that no budget counts.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from .. import errors
from ..errors import InfeasibleBudget, RepriseError
from ..native import _torch

MOST_NUMBERS = _torch.Together.most_numbers
ENDLESS = 2**63 - 1


class Ranks:
    """The processes of a group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = _group_for_messages(group)
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def agree(self, error: Exception | None, numbers: Sequence[int] = ()) -> list[int]:
        """Every process calls this at the same point, such as the end of a call. Raises the same error in all of them if one
        has an error; otherwise returns, for each number, the least that any process gives."""
        if self.size == 1:
            if error is not None:
                raise error
            return list(numbers)
        assert len(numbers) <= MOST_NUMBERS
        given = [0 if error is None else self.rank - self.size, *numbers]
        vote = torch.frombuffer(bytearray(8 * (MOST_NUMBERS + 1)), dtype=torch.int64)
        for i in range(MOST_NUMBERS + 1):
            vote[i] = given[i] if i < len(given) else ENDLESS
        dist.all_reduce(vote, dist.ReduceOp.MIN, self._group)
        least: list[int] = vote.tolist()
        if least[0] == 0:
            return least[1 : len(given)]
        source = self.size + least[0]
        message = self.told_by(source, "" if error is None else json.dumps(_packed(error)))
        raise _unpacked(source, *json.loads(message)) from error

    @contextlib.contextmanager
    def told_to_all(self) -> Iterator[None]:
        """Every process comes here at the same point. An error of one of them in here is raised in all."""
        try:
            yield
        except Exception as error:
            self.agree(error)
            raise
        self.agree(None)

    def told_by(self, source: int, text: str) -> str:
        """What one of the processes says; all call this."""
        if self.size == 1:
            return text
        said = text.encode() if self.rank == source else b""
        length = torch.frombuffer(bytearray(len(said).to_bytes(8, "little")), dtype=torch.int64)
        dist.broadcast(length, group=self._group, group_src=source)
        if length.item() == 0:
            return ""
        letters = bytearray(said or int(length.item()))
        dist.broadcast(torch.frombuffer(letters, dtype=torch.uint8), group=self._group, group_src=source)
        return letters.decode()


def _packed(error: Exception) -> tuple[str, str, list[int]]:
    budgets = [error.budget_bytes, error.smallest_budget_bytes] if isinstance(error, InfeasibleBudget) else []
    return type(error).__name__, str(error), budgets


def _unpacked(rank: int, kind: str, message: str, budgets: list[int]) -> RepriseError:
    made = getattr(errors, kind, None)
    if made is None:
        return RepriseError(f"rank {rank}: {kind}: {message}")
    result: RepriseError = made(f"rank {rank}: {message}", *budgets)
    return result


def _group_for_messages(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """One that takes tensors of the CPU."""
    if dist.get_backend(group) == dist.Backend.GLOO or dist.get_world_size(group) == 1:
        return group
    made: dist.ProcessGroup = dist.new_group(dist.get_process_group_ranks(group), backend=dist.Backend.GLOO,
                                             use_local_synchronization=True)
    return made
