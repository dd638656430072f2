"""A plan for people and for other tools: the page, its data, a trace."""

from __future__ import annotations

import html
import platform
from pathlib import Path
from typing import TypedDict, Unpack

import torch

from .. import _core

CURVE_SECONDS = 10.0  # for planning at all budgets


class Facts(TypedDict):
    """What reports show in addition to the graph and the plan."""

    planner: str
    budget_bytes: int
    outside_bytes: int
    measured: tuple[list[int], list[int]] | None
    curve: list[_core.Solution]
    facts: dict[str, str]


def write_report(path: Path, graph: _core.Graph, costs: _core.Costs, plan: _core.Plan, **facts: Unpack[Facts]) -> None:
    """Writes the page, or its data if the name ends in .json."""
    data = _core.report_json(graph, costs, plan, **facts)
    path.write_text(data if path.suffix == ".json" else _core.report_page(data))


def notebook_html(graph: _core.Graph, costs: _core.Costs, plan: _core.Plan, **facts: Unpack[Facts]) -> str:
    """The page in a frame of its own, so that its styles stay inside."""
    page = _core.report_page(_core.report_json(graph, costs, plan, **facts))
    return (f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:720px;border:0" '
            'title="Reprise: the plan of this model"></iframe>')


def machine_facts(device: torch.device) -> dict[str, str]:
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else \
        f"{platform.processor() or platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"
    return {"device": f"{device.type} ({name})", "torch": torch.__version__, "reprise": _core.__version__}
