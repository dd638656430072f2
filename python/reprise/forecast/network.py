"""Many processes that hold a part of each parameter (reprise.shard), as one of them sees the others.

Nobody communicates: the step of one process is captured without the others, and its collectives take what a ring takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core, planning
from ..native import _torch
from ..show.preflight import Exchange
from ..trace.sharding import Sharding

Collectives = dict[int, tuple[int, int]]  # by op: bytes that this process sends, and time


@dataclass(frozen=True)
class Network:
    """How parameters are divided, and how many bytes a second each process sends to the others."""

    sharding: Sharding
    bytes_per_s: int

    @property
    def ranks(self) -> int:
        return self.sharding.size

    def collectives(self, program: _torch.Program, device_type: str) -> Collectives:
        return _torch.communication(program, device_type, self.ranks, self.bytes_per_s)

    def exchange(self, graph: _core.Graph, costs: _core.Costs, collectives: Collectives, plan: _core.Plan | None,
                 smallest_budget_bytes: int) -> Exchange:
        """What a step exchanges under a plan; without one, what it would without recomputation."""
        plan = plan or _core.solve(graph, costs, planner="none").plan
        communicates = [op for op in planning.ops_in(plan.actions) if op in collectives]
        gathers = {op for op in collectives if not graph.once(op)}
        return Exchange(
            ranks=self.ranks, bytes_per_s=self.bytes_per_s, gathers=len(gathers),
            gathers_again=sum(op in gathers for op in communicates) - len(gathers),
            sent_bytes=sum(collectives[op][0] for op in communicates),
            time_ns=sum(collectives[op][1] for op in communicates),
            # A collective that returns several tensors is waited for where it begins.
            exposed_ns=_core.simulate(graph, costs, plan).exposed_ns +
            sum(collectives[op][1] for op in communicates if graph.stream(op) == 0),
            smallest_budget_bytes=smallest_budget_bytes)
