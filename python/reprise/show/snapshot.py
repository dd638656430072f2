"""A planned step as a PyTorch memory snapshot, for PyTorch's memory viewer."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import _core

BASE = 1 << 32  # address of the one segment


def write_snapshot(path: Path, graph: _core.Graph, costs: _core.Costs, plan: _core.Plan) -> None:
    """The snapshot as torch.cuda.memory._dump_snapshot would have written it: one allocation for each life of a
    value, with the module as its stack."""
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

    memory = _Memory()
    workspaces, sizes = costs.workspace_bytes, costs.value_bytes
    begins: dict[int | None, list[int]] = defaultdict(list)  # by action: values
    ends: dict[int | None, list[int]] = defaultdict(list)
    for life in _core.lives(graph, plan):
        if sizes[life.value] and not life.second_copy:
            begins[life.first].append(life.value)
            ends[life.last].append(life.value)
    live = {value: memory.alloc(sizes[value], frames(None)) for value in begins[None]}
    for i, (kind, op) in enumerate(plan.actions):
        if kind != _core.ActionKind.FREE and workspaces[op]:
            memory.free(memory.alloc(workspaces[op], frames(op)))
        for value in ends[i]:
            memory.free(live.pop(value))
        live |= {value: memory.alloc(sizes[value], frames(op)) for value in begins[i]}
    left = sum(block["size"] for block in live.values())
    segment = {"address": BASE, "total_size": memory.end - BASE, "stream": 0, "segment_type": "large",
               "allocated_size": left, "active_size": left, "requested_size": left, "device": 0,
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": memory.blocks(live.values())}
    return {"segments": [segment], "device_traces": [memory.events], "allocator_settings": {},
            "external_annotations": []}


class _Memory:
    """Allocations and frees as the viewer reads them. Each has an address of its own."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.end = BASE  # the address above all others

    def alloc(self, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
        block = {"address": self.end, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
        self.end += size
        self._event("alloc", block)
        return block

    def free(self, block: dict[str, Any]) -> None:
        self._event("free_requested", block)
        self._event("free_completed", block)

    def blocks(self, live: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The whole segment: the live blocks, and between them those that are no longer in use."""
        blocks, begin = [], BASE
        for block in [*sorted(live, key=lambda block: block["address"]), {"address": self.end, "size": 0}]:
            if block["address"] > begin:
                blocks.append({"address": begin, "size": block["address"] - begin, "requested_size": 0,
                               "state": "inactive", "frames": []})
            blocks.append(block)
            begin = block["address"] + block["size"]
        return blocks[:-1]

    def _event(self, action: str, block: dict[str, Any]) -> None:
        self.events.append({"action": action, "addr": block["address"], "size": block["size"], "stream": 0,
                            "time_us": len(self.events), "compile_context": None, "user_metadata": "",
                            "frames": block["frames"]})
