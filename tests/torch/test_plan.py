"""Tests model.plan and reprise.explain: what people look at, and the file they keep."""

import gc
import io
import json
import logging
import time
from pathlib import Path

import pytest
import torch
from models.zoo import CASES
from steps import compiled, different, model_of, run_step, smallest_budget
from training import Mlp, batch

import reprise
from reprise.progress import Preparation, Progress
from reprise.trace.capture import Capture
from reprise.trace.captured import Captured

CASE = CASES["dropout_mlp"]


def trained(model: torch.nn.Module, steps: int = 2) -> torch.nn.Module:
    for seed in range(steps):
        model.zero_grad()
        model(batch(seed=seed)).square().mean().backward()
    return model


def recomputing() -> torch.nn.Module:
    """A model at the smallest budget that works."""
    model = Mlp(layers=6)
    refused = reprise.compile(Mlp(layers=6), 1)
    with pytest.raises(reprise.InfeasibleBudget) as error:
        trained(refused)
    return trained(reprise.compile(model, error.value.smallest_budget_bytes))


def test_before_the_first_step_there_is_no_plan() -> None:
    model = reprise.compile(Mlp(), "1GB")
    assert not model.plan.ready
    assert "not made yet" in repr(model.plan)
    with pytest.raises(reprise.RepriseError, match="call the model once"):
        _ = model.plan.peak_bytes


def test_the_plan_tells_its_numbers() -> None:
    plan = recomputing().plan
    assert plan.peak_bytes <= plan.budget_bytes
    assert 0 < plan.recompute_ns < plan.time_ns
    assert plan.planner == "auto"
    simulation = reprise.simulate(plan.graph, plan.costs, plan.actions)
    assert (simulation.time_ns, simulation.recompute_ns) == (plan.time_ns, plan.recompute_ns)


def test_a_saved_plan_is_loaded_and_run_again(tmp_path: Path) -> None:
    model = model_of(CASE)
    plain = run_step(model_of(CASE), CASE)
    saved = compiled(model, smallest_budget(model, CASE))
    run_step(saved, CASE)
    saved.plan.save(tmp_path / "mlp.plan.json")
    assert {path.name for path in tmp_path.iterdir()} == {"mlp.plan.json", "mlp.graph.json"}

    other = compiled(model)
    run_step(other, CASE)
    other.load_state_dict(model.state_dict())
    other.plan.load(tmp_path / "mlp.plan.json")
    assert other.plan.actions == saved.plan.actions
    assert not different(run_step(other, CASE), plain)
    assert other.plan.actions == saved.plan.actions


def test_the_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    trained(reprise.compile(Mlp(layers=2))).plan.save(tmp_path / "two.plan.json")
    model = trained(reprise.compile(Mlp(layers=6)))
    with pytest.raises(ValueError, match=r"two.plan.json.*not for Mlp"):
        model.plan.load(tmp_path / "two.plan.json")
    broken = tmp_path / "broken.plan.json"
    broken.write_text(json.dumps({"format": "something else"}))
    with pytest.raises(ValueError, match=r"broken.plan.json"):
        model.plan.load(broken)
    trained(model)  # It goes on with the plan it had.


def test_the_explanation_speaks_of_the_users_modules() -> None:
    model = recomputing()
    explanation = reprise.explain(model)
    names = {name for name, _ in model.named_modules()}
    assert {row.name for row in explanation.modules} <= names
    assert sum(row.recompute_ns for row in explanation.modules) == model.plan.recompute_ns
    assert explanation.peak_bytes == model.plan.peak_bytes < explanation.plain_peak_bytes
    text = str(explanation)
    assert "computed again" in text and "peak, measured" in text and str(model.plan.peak_bytes) in text


def test_the_explanation_knows_the_optimizers_own_peak() -> None:
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    reprise.compile(model, "10MB", optimizer=optimizer)
    trained(model)
    assert reprise.explain(model).optimizer_peak_bytes is None
    optimizer.step()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    assert reprise.explain(model).optimizer_peak_bytes >= 4 * parameters  # parameters, gradients and two moments


def test_a_model_without_a_plan_cannot_be_explained() -> None:
    with pytest.raises(reprise.RepriseError, match="not compiled"):
        reprise.explain(Mlp())


@pytest.mark.usefixtures("own_cache")
def test_who_asks_for_the_plan_waits_for_the_search_beside_the_steps(caplog: pytest.LogCaptureFixture) -> None:
    model = trained(reprise.compile(Mlp(layers=12), waiting_seconds=1e-9))
    budget = (model.plan.smallest_budget_bytes() + model.plan.peak_bytes) // 2  # Now the plan for the smallest one is known.
    model.plan.set_budget(budget)
    trained(model, steps=1)
    found = "a longer search has brought recomputation"
    with caplog.at_level(logging.INFO, "reprise"):
        assert model.plan.ready and model.plan.measured_peak_bytes <= budget  # Reading these does not wait.
        assert found not in caplog.text
        time_ns = model.plan.time_ns
    assert found in caplog.text
    trained(model, steps=1)
    assert model.plan.measured_peak_bytes <= model.plan.peak_bytes <= budget
    model.plan.plan_ahead()
    assert model.plan.time_ns == time_ns


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals_alone(terminal: bool) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    with Progress("planning", stream) as progress:
        progress.last = 0.0
        progress(3, 7)
        progress.last = 0.0
        progress(31_250_001, 125_000_000)
    assert ("planning 3/7\x1b" in stream.getvalue()) == ("planning 25 %\x1b" in stream.getvalue()) == terminal
    if terminal:
        assert stream.getvalue().endswith("\r\x1b[K")  # This clears the line.


@pytest.mark.usefixtures("own_cache")
def test_where_the_time_before_the_first_step_went() -> None:
    model = reprise.compile(Mlp())
    begin = time.perf_counter()
    model(batch()).sum().backward()
    whole = time.perf_counter() - begin
    spent = model.plan.preparation_seconds
    assert {"tracing", "joint graph", "lowering", "capturing", "profiling", "first forward", "planning"} == set(spent)
    assert min(spent.values()) >= 0
    assert spent["joint graph"] > 0
    assert sum(spent.values()) <= whole  # No time is counted twice.
    model(batch()).sum().backward()
    assert model.plan.preparation_seconds == spent


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_while_a_step_is_prepared(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    run = Capture.run

    def watched(capture: Capture) -> Captured:
        seen.append(gc.isenabled())
        return run(capture)

    monkeypatch.setattr(Capture, "run", watched)
    try:
        (gc.enable if enabled else gc.disable)()
        trained(reprise.compile(Mlp()))
        assert seen and not any(seen)
        assert gc.isenabled() == enabled  # It is as it was before.
        with pytest.raises(reprise.InfeasibleBudget):
            trained(reprise.compile(Mlp(), 1))
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_says_which_phase_is_going_on(terminal: bool) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    preparation = Preparation(stream)
    with preparation.phase("tracing"):
        with preparation.phase("capturing"):
            pass
        within = stream.getvalue()
    assert within == ("\rreprise: tracing\x1b[K\rreprise: capturing\x1b[K\rreprise: tracing\x1b[K" if terminal else "")
    assert stream.getvalue() == (within + "\r\x1b[K" if terminal else "")
