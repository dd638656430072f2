"""Processes that train together: an error in one of them is raised in all.

A process that ends with an error would leave the others waiting for what it had to send, so all of them ask one another.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .. import errors
from ..errors import InfeasibleBudget, RepriseError


class Ranks:
    """The processes of a group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = _group_for_messages(group)

    def agree(self, error: Exception | None, flag: bool = False) -> bool:
        """Every process calls this at the same point. Raises the same error in all of them if one has an error; otherwise
        returns whether one of them has given the flag."""
        size, rank = dist.get_world_size(self._group), dist.get_rank(self._group)
        if size == 1:
            if error is not None:
                raise error
            return flag
        votes = torch.tensor([0 if error is None else size - rank, int(flag)])
        dist.all_reduce(votes, dist.ReduceOp.MAX, self._group)
        who, flagged = votes.tolist()
        if who == 0:
            return bool(flagged)
        source = size - who
        message = [None if rank != source or error is None else _packed(error)]
        dist.broadcast_object_list(message, dist.get_global_rank(self._group, source), self._group)
        assert message[0] is not None  # the process that has the error has sent it
        raise _unpacked(source, *message[0]) from error


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
