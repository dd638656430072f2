"""Plans for budgets, and the file of what was found before."""

import json
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


def test_a_search_that_ran_out_of_time_is_made_again_with_more(step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    search, asked = planning._search, []

    def counted(*args: object) -> Found:
        asked.append(args)
        return search(*args)

    monkeypatch.setattr(planning, "_search", counted)
    budget = _core.solve(step, planner="none").simulation.peak_bytes * 6 // 10
    assert planning.find(step, budget, "auto", 0).plan is None
    assert planning.find(step, budget, "auto", 0).plan is None and len(asked) == 1  # no more time than before
    assert planning.find(step, budget, "auto", 60).plan is not None and len(asked) == 2
    assert planning.find(step, budget, "auto", 90).plan is not None and len(asked) == 2  # it came to its end


def test_what_was_stopped_before_it_knew_anything_is_not_remembered(
        step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Found(None, "", None, 0), solved(step, 1 << 40, "none")]
    monkeypatch.setattr(planning, "_search", lambda *_: answers.pop(0))
    assert planning.find(step, 1 << 40, "auto", 1).plan is None
    assert planning.find(step, 1 << 40, "auto", 1).plan is not None


def has_none_in_no_time(graph: Graph, budget_bytes: int) -> bool:
    return not _core.solve(graph, budget_bytes=budget_bytes, should_stop=lambda: True).plan.steps


def test_the_smallest_budget_has_a_plan_however_little_time_there_is(step: Graph) -> None:
    smallest = planning.smallest_budget_bytes(step, "auto", 10)
    assert has_none_in_no_time(step, smallest)
    for budget in (smallest, smallest + 1):
        found = planning.find(step, budget, "auto", 0)
        assert found.plan is not None and found.simulation.peak_bytes == smallest
    assert planning.find(step, smallest - 1, "auto", 0).smallest_budget_bytes == smallest
    assert planning.smallest_budget_bytes(step, "auto", 0) == smallest


def test_so_has_the_one_that_a_refusal_names(step: Graph) -> None:
    smallest = planning.find(step, 1000, "auto", 10).smallest_budget_bytes
    assert has_none_in_no_time(step, smallest)
    assert planning.find(step, smallest, "auto", 0).simulation.peak_bytes == smallest


def test_what_cannot_be_written_is_remembered_all_the_same(
        step: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(planning, "_unwritten", {})
    smallest = planning.smallest_budget_bytes(step, "auto", 10)
    assert planning.find(step, smallest, "auto", 0).simulation.peak_bytes == smallest


def test_what_another_process_wrote_meanwhile_stays(step: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    search, others = planning._search, []

    def slow(*args: object) -> Found:
        if not others:
            others.append(0)
            others.append(planning.smallest_budget_bytes(step, "auto", 10))
        return search(*args)

    monkeypatch.setattr(planning, "_search", slow)
    planning.find(step, 1000, "auto", 0)
    assert planning.find(step, others[1], "auto", 0).plan is not None


def test_plans_serve_the_same_graph_with_other_costs(step: Graph) -> None:
    content = json.loads(step.format())
    for op in content["ops"]:
        op["time_ns"] = op.get("time_ns", 0) + 1000
    other = Graph.parse(json.dumps(content))
    planning.carry_over(step, other, "auto")  # nothing is known
    smallest = planning.smallest_budget_bytes(step, "auto", 10)
    planning.carry_over(step, other, "auto")
    assert has_none_in_no_time(other, smallest)
    assert planning.find(other, smallest, "auto", 0).simulation.peak_bytes == smallest
