"""Tests reprise._core: how values are converted between Python and the library, and which errors are raised."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from reprise import _core
from reprise._core import ActionKind, Costs, Graph, Plan, PlanFile

ROOT = Path(__file__).resolve().parents[2]
TWO_LAYERS = ROOT / "tests/cli/data/two_layers.graph.json"
IN_PLACE = """{"format":"reprise.graph","version":1,"name":"in place",
"values":{"bytes":[8,16,16,4,4,16],"resident":[0],"arriving":[],"held":[4],"overwrites":[[2,1]]},
"outputs":[3,5],
"ops":[{"name":"linear","inputs":[0],"outputs":[1]},
{"name":"relu_","once":true,"inputs":[1],"outputs":[2]},
{"name":"loss","inputs":[2],"outputs":[3]},
{"name":"caller","phase":"caller","inputs":[3],"outputs":[4]},
{"name":"backward","phase":"backward","inputs":[4,2],"outputs":[5]}]}"""


Step = tuple[Graph, Costs]


@pytest.fixture
def step() -> Step:
    return _core.parse_graph(TWO_LAYERS.read_text(), TWO_LAYERS.name)


@pytest.fixture
def two_layers(step: Step) -> Graph:
    return step[0]


@pytest.fixture(scope="module")
def googlenet() -> Step:
    """A step for which the exact planner takes minutes."""
    return _core.parse_graph((ROOT / "data/papers/googlenet.graph.json").read_text())


class TestGraph:
    def test_tells_of_its_ops(self, two_layers: Graph) -> None:
        assert (two_layers.name, two_layers.num_ops, two_layers.num_values) == ("two layers", 5, 7)
        assert [two_layers.op_name(op) for op in (0, 4)] == ["linear", "linear_backward"]
        assert [two_layers.scope_name(op) for op in (1, 2)] == ["fc2", ""]
        phases = [two_layers.phase(op) for op in range(5)]
        assert phases == ["forward", "forward", "caller", "backward", "backward"]
        assert [two_layers.once(op) for op in range(3)] == [False, False, True]
        assert (two_layers.inputs(0), two_layers.outputs(0)) == ([0, 1], [2])
        assert two_layers.caller_op == 2
        assert not two_layers.forward_only

    def test_tells_of_its_values(self, two_layers: Graph) -> None:
        residences = [two_layers.residence(value) for value in range(3)]
        assert residences == ["resident", "arriving", "planned"]
        assert [two_layers.held(value) for value in (3, 4)] == [False, True]
        assert [two_layers.producer(value) for value in (1, 2)] == [None, 0]
        assert two_layers.readers(2) == [1, 3]
        assert two_layers.overwrites(2) is None
        assert two_layers.step_outputs == [3, 6]

    def test_tells_what_is_overwritten(self) -> None:
        graph, _ = _core.parse_graph(IN_PLACE)
        assert graph.overwrites(2) == 1
        assert graph.once(1)

    def test_survives_its_text(self, step: Step) -> None:
        again, costs = _core.parse_graph(_core.format_graph(*step))
        assert (again, costs) == step
        assert again != _core.parse_graph(IN_PLACE)[0]
        with pytest.raises(TypeError):
            hash(again)

    def test_completes_a_forward_only_graph(self, googlenet: Step) -> None:
        assert googlenet[0].forward_only and googlenet[0].caller_op is None
        assert not _core.complete_backward(*googlenet)[0].forward_only

    def test_crosses_in_a_capsule(self) -> None:
        graph, costs = _core.parse_graph(TWO_LAYERS.read_text())
        plan = _core.solve(graph, costs).plan
        capsules = graph.capsule(), costs.capsule(), plan.capsule()
        text, actions = _core.format_graph(graph, costs), plan.actions
        del graph, costs, plan
        graph, costs, plan = (kind.from_capsule(capsule) for kind, capsule in zip((Graph, Costs, Plan), capsules, strict=True))
        del capsules
        assert _core.format_graph(graph, costs) == text
        assert plan.actions == actions

    def test_refuses_other_capsules(self) -> None:
        with pytest.raises(ValueError, match=r"reprise.Graph"):
            Graph.from_capsule(__import__("datetime").datetime_CAPI)
        with pytest.raises(ValueError, match=r"reprise.Costs"):
            Costs.from_capsule(_core.parse_graph(IN_PLACE)[0].capsule())

    def test_says_where_the_text_is_wrong(self) -> None:
        text = TWO_LAYERS.read_text().replace('"inputs":[0,1]', '"inputs":[0,-3]')
        wrong = r"^net\.json:13:\d+: ops\[0\]\.inputs\[1\]: negative: -3"
        with pytest.raises(ValueError, match=wrong):
            _core.parse_graph(text, source="net.json")

    @pytest.mark.parametrize("ask", [Graph.op_name, Graph.inputs, Graph.residence, Graph.readers])
    def test_refuses_what_does_not_exist(
        self, two_layers: Graph, ask: Callable[..., object]
    ) -> None:
        with pytest.raises(IndexError, match=r"7: the graph has [57]"):
            ask(two_layers, 7)


class TestCosts:
    def test_are_lists_beside_the_graph(self, step: Step) -> None:
        costs = step[1]
        assert costs.time_ns == [1200, 90, 0, 90, 2400]
        assert costs.workspace_bytes == [512, 0, 0, 0, 0]
        assert costs.value_bytes == [400, 64, 64, 4, 4, 64, 400]

    def test_may_be_others(self, step: Step) -> None:
        graph, costs = step
        twice = Costs([2 * time for time in costs.time_ns], costs.workspace_bytes, costs.value_bytes)
        assert twice != costs
        plain, slow = (_core.solve(graph, c, planner="none").simulation for c in (costs, twice))
        assert (slow.time_ns, slow.peak_bytes) == (2 * plain.time_ns, plain.peak_bytes)

    def test_are_refused_where_they_are_not_of_the_graph(self, two_layers: Graph) -> None:
        with pytest.raises(ValueError, match="time_ns: 1 numbers for 5 ops"):
            _core.solve(two_layers, Costs([1], [], []))


class TestPlan:
    def test_is_made_of_pairs(self) -> None:
        actions = [(ActionKind.COMPUTE, 3), (ActionKind.COMPUTE_IN_PLACE, 258), (ActionKind.FREE, 0xFFFFFFFE)]
        plan = Plan(actions)
        assert plan.actions == actions
        assert len(plan) == 3
        assert plan != Plan([])

    def test_refuses_what_is_no_action(self) -> None:
        with pytest.raises(TypeError):
            Plan([(0, 0)])

    def test_survives_its_file(self, step: Step) -> None:
        text = TWO_LAYERS.with_name("two_layers.plan.json").read_text()
        file = PlanFile.parse(text)
        assert file.format() == text
        assert (file.graph, file.planner, file.budget_bytes) == ("two layers", "none", 1100)
        assert (file.num_ops, file.num_values) == (5, 7)
        assert file == PlanFile(*step, file.plan, planner="none", budget_bytes=1100)
        with pytest.raises(ValueError, match=r"^mine:1:"):
            PlanFile.parse("{", source="mine")

    def test_is_validated_and_simulated(self, step: Step) -> None:
        plan = PlanFile.parse(TWO_LAYERS.with_name("two_layers.plan.json").read_text()).plan
        assert _core.validate(step[0], plan) is None
        total = _core.simulate(*step, plan)
        assert (total.peak_bytes, total.time_ns, total.recompute_ns) == (1040, 3780, 0)
        timeline = _core.timeline(*step, plan)
        assert timeline.total == total
        assert timeline.start_bytes == 464
        assert max(timeline.during_bytes) == timeline.during_bytes[timeline.peak_action] == 1040
        assert len(timeline.after_bytes) == len(plan)
        assert timeline.live_at_peak[0] == 0

    def test_has_lives(self, two_layers: Graph) -> None:
        plan = PlanFile.parse(TWO_LAYERS.with_name("two_layers.plan.json").read_text()).plan
        spans = [(life.value, life.first, life.last) for life in _core.lives(two_layers, plan)]
        assert spans == [(0, None, None), (1, None, 6), (2, 0, 4), (3, 1, None), (4, 2, None), (5, 3, 7), (6, 5, None)]
        graph, _ = _core.parse_graph(IN_PLACE)
        kinds = [ActionKind.COMPUTE, ActionKind.COMPUTE_IN_PLACE, *[ActionKind.COMPUTE] * 3]
        version = _core.lives(graph, Plan(zip(kinds, range(5), strict=True)))[2]
        assert (version.value, version.first, version.took_over, version.second_copy) == (2, 1, 1, False)

    def test_is_refused_where_it_is_not_legal(self, step: Step) -> None:
        plan = Plan([(ActionKind.COMPUTE, 1)])
        message = _core.validate(step[0], plan)
        assert message is not None and message.startswith("action 0: computes op 1 'loss'")
        for refuse in (_core.simulate, _core.timeline, PlanFile):
            with pytest.raises(ValueError, match="action 0: computes op 1 'loss'"):
                refuse(*step, plan)


class TestSolve:
    def test_keeps_the_budget(self, googlenet: Step) -> None:
        full = _core.solve(*googlenet, planner="none").simulation
        found = _core.solve(*googlenet, planner="lower-sets-approx", budget_bytes=full.peak_bytes // 2)
        assert found.found and found.status == "feasible"
        assert found.simulation.peak_bytes <= full.peak_bytes // 2 == found.budget_bytes
        assert _core.simulate(*_core.complete_backward(*googlenet), found.plan) == found.simulation
        assert found.formula is not None and found.formula.blocks > 1
        assert found.stats["candidates"] > 0

    def test_answers_with_the_smallest_budget(self, googlenet: Step) -> None:
        found = _core.solve(*googlenet, budget_bytes=1000)
        assert found.status == "infeasible" and not found.found
        assert len(found.plan) == 0 and found.message
        assert found.smallest_budget_bytes is not None
        assert _core.solve(*googlenet, budget_bytes=found.smallest_budget_bytes).found

    def test_auto_proves_how_much_faster_no_plan_can_be(self, googlenet: Step) -> None:
        peak = _core.solve(*googlenet, planner="none").simulation.peak_bytes
        found = _core.solve(*googlenet, planner="auto", budget_bytes=peak // 2)
        assert 0 < found.lower_bound_ns <= found.simulation.time_ns
        assert found.gap_ns == found.simulation.time_ns - found.lower_bound_ns
        less = _core.solve(*googlenet, planner="auto", budget_bytes=peak // 2, work=2_000_000, bound_work=1000)
        assert less.found and less.simulation.time_ns >= found.simulation.time_ns
        assert 0 < found.floor_bytes <= found.simulation.peak_bytes

    def test_passes_options_on(self, googlenet: Step) -> None:
        assert "lower-sets-approx" in _core.planner_names()
        by_formula = _core.solve(*googlenet, planner="lower-sets-approx", judge="formula", objective="min-cache",
                                 keep_last=True)
        assert by_formula.planner == "lower-sets-approx"
        assert _core.solve(*googlenet, planner="lower-sets", max_lower_sets=10).status == "stopped"
        assert _core.solve(*googlenet, candidates=1).stats != _core.solve(*googlenet).stats

    def test_refuses_bad_options(self, step: Step) -> None:
        with pytest.raises(ValueError, match="magic"):
            _core.solve(*step, planner="magic")
        with pytest.raises(ValueError, match="judge 'me'; it is one of 'simulated', 'formula'"):
            _core.solve(*step, judge="me")
        with pytest.raises(ValueError, match="budget"):
            _core.solve(*step, budget_bytes=-1)
        with pytest.raises(TypeError, match="unknown option 'budgets'"):
            _core.solve(*step, budgets=3)
        with pytest.raises(TypeError, match="'budget_bytes': '6GiB'"):
            _core.solve(*step, budget_bytes="6GiB")

    def test_draws_a_curve(self, googlenet: Step) -> None:
        curve = _core.curve(*googlenet)
        totals = [point.simulation for point in curve.points]
        assert not curve.stopped and len(totals) > 2
        assert all(a.peak_bytes < b.peak_bytes and a.time_ns > b.time_ns
                   for a, b in pairwise(totals))


class TestInterruption:
    """The exact planner would take minutes, so each of these tests ends only because something stops the planner."""

    def test_stops_when_told(self, googlenet: Step) -> None:
        found = _core.solve(*googlenet, planner="lower-sets", should_stop=lambda: True)
        assert found.status == "stopped"
        assert _core.curve(*googlenet, planner="lower-sets", should_stop=lambda: True).stopped

    def test_tells_of_progress(self, googlenet: Step) -> None:
        told: list[tuple[int, int]] = []
        _core.solve(*googlenet, progress=lambda done, total: told.append((done, total)))
        assert told and told[-1][0] == told[-1][1]

    @pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
    @pytest.mark.parametrize("run", [_core.solve, _core.curve])
    def test_raises_what_should_stop_raises(self, googlenet: Step, run: Callable[..., object],
                                            error: type[BaseException]) -> None:
        def fail() -> bool:
            raise error("mine")

        with pytest.raises(error, match="mine"):
            run(*googlenet, planner="lower-sets", should_stop=fail)

    def test_raises_what_progress_raises(self, googlenet: Step) -> None:
        def fail(done: int, total: int) -> None:
            raise KeyError(f"{done} of {total}")

        with pytest.raises(KeyError, match=" of "):
            _core.solve(*googlenet, progress=fail)

    def test_ends_at_ctrl_c(self, googlenet: Step) -> None:
        begin = time.monotonic()
        with interrupt_after(0.3), pytest.raises(KeyboardInterrupt):
            _core.solve(*googlenet, planner="lower-sets")
        assert time.monotonic() - begin < 20

    def test_leaves_other_threads_running(self, googlenet: Step) -> None:
        counted, done = 0, threading.Event()

        def plan() -> None:
            _core.solve(*googlenet, planner="lower-sets", should_stop=lambda: counted > 100_000)
            done.set()

        threading.Thread(target=plan).start()
        begin = time.monotonic()
        while not done.is_set() and time.monotonic() - begin < 60:
            counted += 1
        assert done.is_set() and counted > 100_000


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Sends SIGINT, as Ctrl-C on a terminal does, while the block runs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_bytes_for_people() -> None:
    assert _core.parse_bytes("6GiB") == 6 * 2**30
    assert _core.format_bytes(6 * 2**30) == "6.00 GiB"
    with pytest.raises(ValueError, match="six"):
        _core.parse_bytes("six")
