"""Plans for budgets, and the file of what was found before."""

from pathlib import Path

import pytest

from reprise import _core, planning
from reprise._core import Graph
from reprise.planning import Found

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path))


@pytest.fixture
def step() -> Graph:
    return Graph.parse((ROOT / "data/steps/vgg19_64.graph.json").read_text())


def solved(graph: Graph, budget_bytes: int, planner: str) -> Found:
    found = _core.solve(graph, planner=planner, budget_bytes=budget_bytes)
    return Found(found.plan, planner, found.simulation, 0)


def test_more_budget_never_gives_a_slower_plan(step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _core.solve(step, planner="none").simulation
    small, large = plain.peak_bytes * 8 // 10, plain.peak_bytes * 9 // 10
    fast, slow = solved(step, small, "auto"), solved(step, large, "chen")
    assert slow.simulation.time_ns > fast.simulation.time_ns

    searches: list[int] = []

    def search(_graph: Graph, budget_bytes: int, _planner: str, _seconds: float) -> Found:
        searches.append(budget_bytes)
        return fast if budget_bytes == small else slow

    monkeypatch.setattr(planning, "_search", search)
    assert planning.find(step, large, "auto", 1).simulation == slow.simulation
    assert planning.find(step, small, "auto", 1).simulation == fast.simulation
    assert planning.find(step, large, "auto", 1).simulation == fast.simulation  # it fits there too
    assert planning.find(step, large + 1, "auto", 1).simulation == fast.simulation
    assert searches == [large, small, large + 1]


def test_a_refusal_is_remembered_with_the_smallest_budget(step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = planning.find(step, 1000, "auto", 10)
    assert refused.plan is None and refused.smallest_budget_bytes > 1000
    monkeypatch.setattr(planning, "_search", None)  # it is not asked again
    assert planning.find(step, 1000, "auto", 10).smallest_budget_bytes == refused.smallest_budget_bytes


def test_what_was_stopped_before_it_knew_anything_is_not_remembered(
        step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Found(None, "", None, 0), solved(step, 1 << 40, "none")]
    monkeypatch.setattr(planning, "_search", lambda *_: answers.pop(0))
    assert planning.find(step, 1 << 40, "auto", 1).plan is None
    assert planning.find(step, 1 << 40, "auto", 1).plan is not None
