"""Processes that train together: an error in one of them is raised in all.

A process that ends with an error would leave the others waiting for what it had to send, so all of them ask one another.
Messages lie in memory that no budget counts. Where one does not answer, the others tell one another through the group's store
that they are still there, so that each of them can name it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from .. import errors
from ..errors import InfeasibleBudget, RankAbsent, RepriseError, first_line
from ..native import _torch

MOST_NUMBERS = _torch.Together.most_numbers
ENDLESS = 2**63 - 1
PATIENCE = 5.0  # seconds in which all who still are there notice that somebody is missing


class Ranks:
    """The processes of a group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = _group_for_messages(group)
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self._lost: RankAbsent | None = None  # once it is raised, nobody answers any more

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
        with self.absence_named():
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
        with self.absence_named():
            dist.broadcast(length, group=self._group, group_src=source)
        if length.item() == 0:
            return ""
        letters = bytearray(said or int(length.item()))
        with self.absence_named():
            dist.broadcast(torch.frombuffer(letters, dtype=torch.uint8), group=self._group, group_src=source)
        return letters.decode()

    @contextlib.contextmanager
    def absence_named(self) -> Iterator[None]:
        """In here this process waits for the others. Where communication fails, the error names those who are missing."""
        if self._lost is not None:
            raise self._lost
        begin = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if not _is_of_communication(error):
                raise
            waited = time.monotonic() - begin
            self._lost = RankAbsent(f"{self._missing()} (after {waited:.0f} s: {first_line(error)[:200]}). "
                                    "All ranks have to call the model and backward equally often. Look at what the missing ones "
                                    "have said last, and start all of them again")
            raise self._lost from error

    def _missing(self) -> str:
        store = self._group.get_group_store()
        end = time.monotonic() + PATIENCE
        try:
            store.set(f"reprise: {self.rank} is there", "")
            missing = {rank for rank in range(self.size) if rank != self.rank}
            while missing and time.monotonic() < end:
                missing = {rank for rank in missing if not store.check([f"reprise: {rank} is there"])}
                time.sleep(0.01)
        except RuntimeError:
            return ("ranks do not answer any more, and the store in which they met does not, either: the process that has it has "
                    "ended, which is rank 0 unless torchrun has it")
        names = " and ".join(str(dist.get_global_rank(self._group, rank)) for rank in sorted(missing))
        if not missing:
            return "all ranks are there, but came too late for one another"
        return (f"rank {names} does not answer: it has ended, or waits somewhere else" if len(missing) == 1 else
                f"ranks {names} do not answer: they have ended, or wait somewhere else")


def _is_of_communication(error: RuntimeError) -> bool:
    """gloo's errors have no type of their own; most begin with the place in its source."""
    return isinstance(error, dist.DistError) or any(words in first_line(error) for words in ("/gloo/", "caused pair closure"))


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
