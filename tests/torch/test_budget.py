"""The budget bounds everything that is allocated from the call of the model to the return of backward."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from models.zoo import CASES
from steps import model_of, run_step
from steps import smallest_budget as smallest_of_case
from torch import Tensor, nn
from training import DEVICE, Mlp, allocated, batch, smallest_budget, state_of

import reprise
from reprise import _core
from reprise.native import _torch
from reprise.optimizer_state import optimizer_state_bytes, optimizer_tensors

pytestmark = pytest.mark.usefixtures("one_thread")


def step(model: nn.Module, x: Tensor | None = None) -> None:
    """Runs a step. The caller holds the output until the end, as plans assume."""
    output = model(batch() if x is None else x)
    output.square().mean().backward()


def resident(model: nn.Module, *more: Any) -> int:
    return sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers(), *more])


class Peak:
    """Measures the peak of the block, on top of `there` bytes, with PyTorch's own profiler, since Reprise resets the
    peak of the meter for the step that it measures."""

    def __init__(self, there: int) -> None:
        self.there = there

    def __enter__(self) -> Peak:
        self.profile = torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU])
        self.profile.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.profile.__exit__(*error)
        level = highest = 0
        for event in self.profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                level += event.nbytes()
                highest = max(highest, level)
        self.bytes = self.there + highest


def deep(width: int = 16) -> Mlp:
    torch.manual_seed(0)
    return Mlp(width=width, layers=8)


def test_a_refused_budget_names_one_that_works_and_leaves_everything_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    plain = copy.deepcopy(model)
    reprise.compile(model, "1kB")
    torch.manual_seed(3)
    generator = torch.get_rng_state()
    before = state_of(plain)
    x = batch()
    level = allocated()
    for _ in range(2):
        with pytest.raises(reprise.InfeasibleBudget, match="smallest budget") as caught:
            model(x)
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), generator)
    error = caught.value
    assert error.budget_bytes == 1000
    assert str(error.smallest_budget_bytes) in str(error)
    del caught
    error.__traceback__ = None
    assert allocated() - level < 1024  # The captured step keeps a few numbers.

    reprise.compile(model, error.smallest_budget_bytes)
    for seed in range(2):
        for each in (plain, model):
            torch.manual_seed(seed)
            each.zero_grad()
            each(x).square().mean().backward()
    assert state_of(model) == state_of(plain)
    assert model.plan.measured_peak_bytes <= error.smallest_budget_bytes


@pytest.mark.parametrize("name", ["dropout_mlp", "inplace_views"])
def test_the_peak_is_as_predicted_and_never_above_any_budget(name: str) -> None:
    case = dataclasses.replace(CASES[name], batch=64)
    model = model_of(case)
    free = reprise.compile(copy.deepcopy(model), planning_seconds=1)
    run_step(free, case)
    run_step(free, case)
    highest, lowest = free.plan.peak_bytes, smallest_of_case(model, case, planning_seconds=1)
    args, _ = case.make_inputs()
    there = resident(model, *args)
    assert lowest < highest
    highest += 8192  # Until it is measured, this is what the caller is assumed to keep.
    budgets = [lowest + (highest - lowest) * i // 9 for i in range(10)]
    recomputation = []
    for i, budget in enumerate(budgets):
        if i % 4 == 0:  # Others are set later, which is quicker.
            planned = reprise.compile(copy.deepcopy(model), budget, planning_seconds=1)
        else:
            planned.plan.set_budget(budget)
        # While the step is captured, PyTorch keeps a few numbers that cannot be told from the caller's.
        for allowed in (budget + 64, budget):
            with Peak(there) as peak:
                output = planned(*args)
                case.loss(output).backward()
            del output
            planned.zero_grad()
            assert peak.bytes <= allowed
        assert planned.plan.peak_bytes == planned.plan.measured_peak_bytes == pytest.approx(peak.bytes, abs=1024)
        recomputation.append(planned.plan.recompute_ns)
    assert recomputation[-1] == 0 < recomputation[0]


def test_accumulation_stays_inside() -> None:
    """If there are gradients already, backward needs memory for the new ones beside them."""
    model = deep()

    def loop(m: nn.Module) -> None:
        for _ in range(3):
            step(m)

    budget = smallest_budget(model, loop)
    planned = reprise.compile(copy.deepcopy(model), budget)
    peaks = []
    x = batch()
    for _ in range(4):
        there = resident(planned, x, *(p.grad for p in planned.parameters() if p.grad is not None))
        with Peak(there) as peak:
            step(planned, x)
        peaks.append(peak.bytes)
    assert planned.plan.measured_peak_bytes == planned.plan.peak_bytes == pytest.approx(peak.bytes, abs=1024)
    assert max(peaks) <= budget
    assert peaks[1] > peaks[0]


def test_the_optimizer_s_state_is_planned_for_before_it_exists() -> None:
    model = deep()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    reprise.compile(model, 1, optimizer=optimizer)
    x = batch()
    with pytest.raises(reprise.InfeasibleBudget) as caught:
        step(model, x)
    budget = caught.value.smallest_budget_bytes
    del caught
    reprise.compile(model, budget, optimizer=optimizer)
    for count in range(3):
        optimizer.zero_grad()
        state = [t for s in optimizer.state.values() for t in s.values()]
        assert bool(state) == (count > 0)
        with Peak(resident(model, x, *state)) as peak:
            step(model, x)
        assert peak.bytes <= budget
        optimizer.step()
        del state


def test_without_the_optimizer_its_state_is_noticed_when_it_is_there() -> None:
    model = deep()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    budget = smallest_budget(model, step)
    reprise.compile(model, budget)
    step(model)
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(reprise.InfeasibleBudget):
        step(model)


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, amsgrad=True), torch.optim.RMSprop, torch.optim.Adagrad],
    ids=["sgd", "momentum", "amsgrad", "rmsprop", "adagrad"])
def test_the_size_of_an_optimizer_s_state_is_known(make: Any) -> None:
    model = Mlp()
    optimizer = make(model.parameters())
    told = optimizer_state_bytes(optimizer, DEVICE)
    step(model)
    optimizer.step()
    assert told == _torch.storage_bytes(optimizer_tensors(optimizer), DEVICE)


def test_the_reserve_is_left_free() -> None:
    model = deep()
    smallest = smallest_budget(model, step)
    planned = reprise.compile(copy.deepcopy(model), smallest + 5000, reserve=5000)
    step(planned)
    assert planned.plan.measured_peak_bytes <= smallest
    with pytest.raises(reprise.InfeasibleBudget, match="reserved"):
        step(reprise.compile(copy.deepcopy(model), smallest + 5000, reserve="6kB"))


def test_memory_the_caller_takes_between_steps_leads_to_a_new_plan() -> None:
    model = deep()
    free = reprise.compile(copy.deepcopy(model))
    step(free)
    smallest = smallest_budget(model, step)
    budget = free.plan.peak_bytes
    planned = reprise.compile(copy.deepcopy(model), budget)
    x = batch()
    for _ in range(2):
        step(planned, x)
        planned.zero_grad()
    assert planned.plan.recompute_ns == 0
    mine = torch.zeros((budget - smallest) // 2 // 4)
    for _ in range(2):
        with Peak(resident(planned, x, mine)) as peak:
            step(planned, x)
        assert peak.bytes <= budget
        planned.zero_grad()
    assert planned.plan.recompute_ns > 0
    more = torch.zeros(budget // 4)
    with pytest.raises(reprise.InfeasibleBudget):
        step(planned, x)
    del mine, more
    step(planned, x)
    assert planned.plan.recompute_ns == 0


def test_what_the_caller_keeps_between_forward_and_backward_is_never_silently_too_much() -> None:
    model = deep()
    budget = smallest_budget(model, step) + 200
    planned = reprise.compile(copy.deepcopy(model), budget)
    x = batch()
    step(planned, x)
    planned.zero_grad()
    output = planned(x)
    kept = torch.zeros(budget)
    with pytest.raises(reprise.BudgetExceeded, match="run the step again"):
        output.square().mean().backward()
    del kept, output
    planned.zero_grad()
    with pytest.raises(reprise.InfeasibleBudget):
        planned(x)


def test_what_the_caller_keeps_is_planned_for_from_the_next_step_on() -> None:
    model = deep()
    free = reprise.compile(copy.deepcopy(model))
    step(free)
    budget = free.plan.peak_bytes
    kept_bytes = (budget - smallest_budget(model, step)) // 2
    planned = reprise.compile(copy.deepcopy(model), budget)
    x = batch()
    ran = []
    for _ in range(4):
        with Peak(resident(planned, x)) as peak:
            output = planned(x)
            kept = torch.zeros(kept_bytes // 4)
            try:
                output.square().mean().backward()
                fine = True
            except reprise.BudgetExceeded:
                fine = False
            del output, kept
        planned.zero_grad()
        ran.append(fine)
        assert peak.bytes <= budget or not fine
    assert ran[1:] == [True, True, True]
    assert planned.plan.recompute_ns > 0


def test_what_the_caller_takes_for_a_moment_is_told_and_planned_for(caplog: pytest.LogCaptureFixture) -> None:
    model = deep()
    planned = reprise.compile(model, smallest_budget(model, step) + 200)
    step(planned)
    planned.zero_grad()
    output = planned(batch())
    torch.zeros(1 << 20)
    with caplog.at_level(logging.WARNING, "reprise"):
        output.square().mean().backward()
    assert "above the budget" in caplog.text
    with pytest.raises(reprise.InfeasibleBudget):
        planned(batch())


def test_a_second_forward_before_backward_is_refused_where_it_would_not_fit() -> None:
    model = deep()
    budget = smallest_budget(model, step)
    planned = reprise.compile(copy.deepcopy(model), budget)
    x = batch()
    step(planned, x)
    planned.zero_grad()
    with Peak(resident(planned, x)) as peak:
        first = planned(x)
        with pytest.raises(reprise.InfeasibleBudget):
            planned(x)
        first.sum().backward()
    assert peak.bytes <= budget


@pytest.mark.parametrize("budget", [0.5, -1, "6 potatoes", "-1GB", True, [1], "", float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused_at_once(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"^budget.*(bytes|size|unit)"):
        reprise.compile(Mlp(), budget)
    with pytest.raises(ValueError, match=r"^reserve.*(bytes|size|unit)"):
        reprise.compile(Mlp(), "1GB", reserve=budget)


def test_wrong_options_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unknown planner 'fastest'; the planners are "):
        reprise.compile(Mlp(), "1GB", planner="fastest")
    with pytest.raises(ValueError, match="profile='guess': choose"):
        reprise.compile(Mlp(), "1GB", profile="guess")
    with pytest.raises(ValueError, match="planning_seconds"):
        reprise.compile(Mlp(), "1GB", planning_seconds=0)
    with pytest.raises(ValueError, match="waiting_seconds"):
        reprise.compile(Mlp(), "1GB", waiting_seconds=-1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        reprise.compile(Mlp(), "1GB", colour="red")
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        reprise.compile(lambda x: x, "1GB")


@pytest.mark.parametrize("planner", reprise.planner_names())
def test_every_planner_runs(planner: str) -> None:
    model = deep()
    plain = copy.deepcopy(model)
    planned = reprise.compile(copy.deepcopy(model), "1GB", planner=planner)
    step(planned)
    reprise.compile(planned, planned.plan.peak_bytes + 8192, planner=planner)
    planned.zero_grad()
    step(planned)
    step(plain)  # It comes last, because its gradients would count in the budget.
    assert state_of(planned) == state_of(plain)
    assert planned.plan.planner == planner


def test_the_roofline_plans_without_measuring() -> None:
    model = deep()
    plain = copy.deepcopy(model)
    planned = reprise.compile(copy.deepcopy(model), "1GB", profile="roofline")
    for each in (plain, planned):
        step(each)
    assert state_of(planned) == state_of(plain)


@pytest.mark.usefixtures("own_cache")
def test_a_budget_named_as_the_smallest_can_be_set_however_little_time_there_is() -> None:
    """After a step it is known what the caller allocates, which makes another graph. The plans for the first graph must be
    known for this one too."""
    model = reprise.compile(Mlp(layers=12), planning_seconds=1e-9)
    step(model)
    step(model)
    budget = model.plan.smallest_budget_bytes(10.0)
    room = budget - model.plan.outside_bytes
    assert not _core.solve(model.plan.graph, model.plan.costs, budget_bytes=room, should_stop=lambda: True).plan.actions
    model.plan.set_budget(budget)
    for _ in range(3):
        model.zero_grad()
        step(model)
        assert model.plan.measured_peak_bytes <= budget
    assert model.plan.recompute_ns > 0


@pytest.mark.usefixtures("own_cache")
def test_so_can_one_that_a_refusal_names() -> None:
    model = reprise.compile(Mlp(layers=12), 1, planning_seconds=10.0)
    with pytest.raises(reprise.InfeasibleBudget) as caught:
        step(model)
    budget = caught.value.smallest_budget_bytes
    del caught  # It holds the batch.
    reprise.compile(model, budget, planning_seconds=1e-9)
    for _ in range(3):  # Between forward and backward, less is allocated than was assumed.
        model.zero_grad()
        step(model)
        assert model.plan.measured_peak_bytes <= budget


def test_what_noisy_times_do_not_find_is_looked_for_with_others(own_cache: Path) -> None:
    """If a search with measured times finds nothing, another one with smooth times is made, as in preflight. Otherwise
    preflight would promise more than compile keeps."""
    model, x = deep(), batch()
    free = reprise.compile(model)
    free(x)
    graph, costs, peak = free.plan.graph, free.plan.costs, free.plan.peak_bytes
    budget = (free.plan.smallest_budget_bytes() + peak) // 2
    shutil.rmtree(own_cache / "plans")  # The measurements stay.
    reprise.compile(model, budget)(x)
    (path,) = (own_cache / "plans").iterdir()
    book = json.loads(path.read_text())
    plain = _core.solve(graph, costs, planner="none")
    actions = json.loads(_core.PlanFile(graph, costs, plain.plan).format())["actions"]
    asked = {"budget_bytes": book["asked"][0]["budget_bytes"], "smallest_budget_bytes": plain.simulation.peak_bytes}
    path.write_text(json.dumps(book | {"plans": [{"planner": "none", "actions": actions}], "asked": [asked]}))
    planned = reprise.compile(model, budget)  # Now the file says that a search with measured times has found nothing.
    step(planned, x)
    assert planned.plan.recompute_ns > 0
    assert planned.plan.measured_peak_bytes <= planned.plan.peak_bytes <= budget
