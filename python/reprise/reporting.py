"""model.plan for people and for other tools: the page, its data, a trace, a snapshot."""

from __future__ import annotations

import html
import json
import logging
import pickle
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import _core, planning
from .region import Record

if TYPE_CHECKING:
    from .plan import ModelPlan

log = logging.getLogger("reprise")

CURVE_SECONDS = 10.0
BASE = 1 << 32  # address of a snapshot's segment


def report(plan: ModelPlan, path: Path, curve_seconds: float) -> None:
    """The page, or with a name that ends in .json its data."""
    data = _core.report_json(plan.graph, plan.steps, **_input(plan, curve_seconds))
    path.write_text(data if path.suffix == ".json" else _core.report_page(data))
    log.info("the report of %s: %s", plan.region.name, path)


def trace(plan: ModelPlan, path: Path) -> None:
    path.write_text(_core.trace_json(plan.graph, plan.steps, **_input(plan, 0)))


def notebook_html(plan: ModelPlan) -> str:
    """The page in a frame of its own: its styles stay inside."""
    page = _core.report_page(_core.report_json(plan.graph, plan.steps, **_input(plan, 0)))
    return (f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:720px;border:0" '
            'title="Reprise: the plan of this model"></iframe>')


def _input(plan: ModelPlan, curve_seconds: float) -> dict[str, Any]:
    region, planned = plan.region, plan.region.current
    points = planning.curve(plan.graph, plan.region.settings.planner, curve_seconds).points if curve_seconds else []
    measured = None if planned.record is None else _measured(planned.record, plan.steps, plan.graph.caller_op)
    return {"planner": plan.planner, "budget_bytes": plan.budget_bytes or 0, "outside_bytes": planned.outside_bytes,
            "measured": measured, "curve": points, "facts": _facts(region.device)}


def _measured(record: Record, plan: _core.Plan, caller: int) -> tuple[list[int], list[int]]:
    """Bytes at every step of the plan. Where forward ended, the caller's come in between."""
    boundary = next(i for i, (kind, op) in enumerate(plan.steps) if kind != _core.Plan.FREE and op == caller)
    during, after = record.trace.during_bytes, record.trace.after_bytes
    during.insert(boundary, record.caller_peak_bytes)
    after.insert(boundary, record.caller_end_bytes)
    return [b + record.base_bytes for b in during], [b + record.base_bytes for b in after]


def _facts(device: torch.device) -> dict[str, str]:
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else \
        f"{platform.processor() or platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"
    return {"device": f"{device.type} ({name})", "torch": torch.__version__, "reprise": _core.__version__}


def snapshot(plan: ModelPlan, path: Path) -> None:
    """The planned step as torch.cuda.memory._dump_snapshot would have written it, for PyTorch's
    memory viewer: an allocation per life of a value, with the module as its stack."""
    with path.open("wb") as file:
        pickle.dump(snapshot_of(plan.graph, plan.steps), file, protocol=4)  # what the viewer reads


def snapshot_of(graph: _core.Graph, plan: _core.Plan) -> dict[str, Any]:
    report_data = json.loads(_core.report_json(graph, plan))
    modules, kinds, ops = report_data["modules"], report_data["kinds"], report_data["ops"]

    def frames(op: int | None) -> list[dict[str, Any]]:
        if op is None:
            return [{"filename": "", "line": 0, "name": "there before the step"}]
        return [{"filename": "", "line": 0, "name": kinds[ops["kind"][op]]},
                {"filename": "", "line": 0, "name": modules[ops["module"][op]] or "the model itself"}]

    memory = _Lives(frames)
    for value in range(graph.num_values):
        if graph.residence(value) != "planned":
            memory.begin(value, graph.bytes(value), None)
    for kind, number in plan.steps:
        if kind == _core.Plan.FREE:
            memory.end(number)
            continue
        memory.passing(graph.workspace_bytes(number), number)
        for value in graph.outputs(number):
            old = graph.overwrites(value)
            if kind == _core.Plan.COMPUTE_IN_PLACE and old is not None:
                memory.end(old)
            memory.begin(value, graph.bytes(value), number)
    left = sum(size for _, size, _ in memory.live.values())
    segment = {"address": BASE, "total_size": memory.highest_address - BASE, "stream": 0, "segment_type": "large",
               "allocated_size": left, "active_size": left, "requested_size": left, "device": 0,
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": memory.blocks()}
    return {"segments": [segment], "device_traces": [memory.events], "allocator_settings": {},
            "external_annotations": []}


class _Lives:
    """Allocations and frees as the viewer reads them. Each life has an address of its own."""

    def __init__(self, frames: Any) -> None:
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
