"""A planned step as a memory snapshot of PyTorch's, for its memory viewer."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import _core

BASE = 1 << 32  # address of the one segment


def write_snapshot(path: Path, graph: _core.Graph, costs: _core.Costs, plan: _core.Plan) -> None:
    """As torch.cuda.memory._dump_snapshot would have written it: an allocation per life of a value, with
    the module as its stack."""
    with path.open("wb") as file:
        pickle.dump(snapshot_of(graph, costs, plan), file, protocol=4)  # what the viewer reads


def snapshot_of(graph: _core.Graph, costs: _core.Costs, plan: _core.Plan) -> dict[str, Any]:
    report_data = json.loads(_core.report_json(graph, costs, plan))
    modules, kinds, ops = report_data["modules"], report_data["kinds"], report_data["ops"]

    def frames(op: int | None) -> list[dict[str, Any]]:
        if op is None:
            return [{"filename": "", "line": 0, "name": "there before the step"}]
        return [{"filename": "", "line": 0, "name": kinds[ops["kind"][op]]},
                {"filename": "", "line": 0, "name": modules[ops["module"][op]] or "the model itself"}]

    memory = _Lives(frames)
    workspaces, sizes = costs.workspace_bytes, costs.value_bytes
    for value in range(graph.num_values):
        if graph.residence(value) != "planned":
            memory.begin(value, sizes[value], None)
    for kind, number in plan.actions:
        if kind == _core.ActionKind.FREE:
            memory.end(number)
            continue
        memory.passing(workspaces[number], number)
        for value in graph.outputs(number):
            old = graph.overwrites(value)
            if kind == _core.ActionKind.COMPUTE_IN_PLACE and old is not None:
                memory.end(old)
            memory.begin(value, sizes[value], number)
    left = sum(size for _, size, _ in memory.live.values())
    segment = {"address": BASE, "total_size": memory.highest_address - BASE, "stream": 0, "segment_type": "large",
               "allocated_size": left, "active_size": left, "requested_size": left, "device": 0,
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": memory.blocks()}
    return {"segments": [segment], "device_traces": [memory.events], "allocator_settings": {},
            "external_annotations": []}


class _Lives:
    """Allocations and frees as the viewer reads them. Each life has an address of its own."""

    def __init__(self, frames: Callable[[int | None], list[dict[str, Any]]]) -> None:
        self.frames = frames
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}
        self.highest_address = BASE

    def begin(self, value: int, size: int, op: int | None) -> None:
        if size == 0 or value in self.live:
            return
        self.live[value] = (self._alloc(size, op), size, self.frames(op))

    def end(self, value: int) -> None:
        if value in self.live:
            address, size, frames = self.live.pop(value)
            self._event("free_requested", address, size, frames)
            self._event("free_completed", address, size, frames)

    def passing(self, size: int, op: int) -> None:
        """Workspace: there while the op runs."""
        if size:
            self.begin(-1, size, op)
            self.end(-1)

    def blocks(self) -> list[dict[str, Any]]:
        """The whole segment: what is live at the end, and between that what is not in use any more."""
        blocks, begin = [], BASE
        for address, size, frames in [*sorted(self.live.values(), key=lambda b: b[0]), (self.highest_address, 0, [])]:
            for at, length, state in ((begin, address - begin, "inactive"), (address, size, "active_allocated")):
                if length:
                    blocks.append({"address": at, "size": length, "requested_size": length if at == address else 0,
                                   "state": state, "frames": frames if at == address else []})
            begin = address + size
        return blocks

    def _alloc(self, size: int, op: int | None) -> int:
        address = self.highest_address
        self.highest_address += size
        self._event("alloc", address, size, self.frames(op))
        return address

    def _event(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self.events.append({"action": action, "addr": address, "size": size, "stream": 0,
                            "time_us": len(self.events), "compile_context": None, "user_metadata": "",
                            "frames": frames})
