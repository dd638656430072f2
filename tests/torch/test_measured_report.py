"""Tests model.plan.report, which shows a real step beside its prediction, and the files for other tools."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from training import Mlp, batch

import reprise
from reprise import _core


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A model that was trained at the smallest budget that works."""
    torch.manual_seed(0)
    refused = reprise.compile(Mlp(layers=6), 1)
    with pytest.raises(reprise.InfeasibleBudget) as error:
        train(refused)
    model = reprise.compile(Mlp(layers=6), error.value.smallest_budget_bytes)
    train(model, steps=4)
    return model


def train(model: torch.nn.Module, steps: int = 1) -> None:
    for seed in range(steps):
        train_step(model, seed)


def train_step(model: torch.nn.Module, seed: int) -> None:
    """Runs one step, in a function of its own so that nothing of it is left for the next one."""
    model.zero_grad()
    output = model(batch(seed=seed))
    loss = output.square().mean()
    loss.backward()


@pytest.fixture(scope="module")
def data(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return json.loads(model.plan.report(tmp_path_factory.mktemp("report") / "plan.json").read_text())


def test_measured_and_predicted_memory_are_the_same_curve(model: torch.nn.Module, data: dict[str, Any]) -> None:
    runs = data["planned_runs"]
    assert model.plan.recompute_ns > 0
    assert runs["measured_during_bytes"] == runs["during_bytes"]
    assert runs["measured_after_bytes"] == runs["after_bytes"]
    assert data["measured_peak_bytes"] == data["planned"]["peak_bytes"] == model.plan.peak_bytes
    assert data["measured_peak_bytes"] == model.plan.measured_peak_bytes


def test_looking_at_every_op_does_not_change_the_measured_peak() -> None:
    torch.manual_seed(0)
    model = reprise.compile(Mlp(layers=6))
    peaks = set()
    for _ in range(5):  # The first two steps of a plan are observed op by op, the others are not.
        train(model)
        peaks.add(model.plan.measured_peak_bytes)
    assert peaks == {model.plan.peak_bytes}


def test_names_and_totals_are_the_users(model: torch.nn.Module, data: dict[str, Any]) -> None:
    assert {"layers.0", "layers.5", "head"} <= set(data["modules"])
    assert "tanh" in data["kinds"] and not any(kind[-1].isdigit() for kind in data["kinds"])
    assert data["budget_bytes"] == model.plan.budget_bytes
    assert data["planned"]["recompute_ns"] == model.plan.recompute_ns
    rows = {row.name: row for row in reprise.explain(model).modules}
    for name, kept, runs in zip(data["modules"], data["by_module"]["kept_bytes"],
                                data["by_module"]["recomputed_runs"], strict=True):
        assert kept == (rows[name].kept_bytes if name in rows else 0)
        assert runs == (rows[name].recomputed_ops if name in rows else 0)


def test_one_thread_is_no_threads(model: torch.nn.Module, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    for count, text in ((1, ", 1 thread)"), (2, ", 2 threads)")):
        torch.set_num_threads(count)
        try:
            path = model.plan.report(tmp_path / "plan.json", curve_seconds=0)
        finally:
            torch.set_num_threads(before)
        assert json.loads(path.read_text())["facts"]["device"].endswith(text)


def test_the_curve_is_there_unless_unwanted(model: torch.nn.Module, data: dict[str, Any], tmp_path: Path) -> None:
    assert data["curve"]["peak_bytes"] == sorted(data["curve"]["peak_bytes"])
    assert data["curve"]["time_ns"][-1] == data["plain"]["time_ns"]
    assert data["lower_bound_ns"] is not None
    without = json.loads(model.plan.report(tmp_path / "plan.json", curve_seconds=0).read_text())
    assert without["curve"]["peak_bytes"] == []


def test_the_page_holds_the_data(model: torch.nn.Module, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reprise")
    page = model.plan.report(tmp_path / "plan.html", curve_seconds=0).read_text()
    text = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(text) == json.loads(model.plan.report(tmp_path / "plan.json", curve_seconds=0).read_text())
    assert any(r.name == "reprise" and "plan.html" in r.getMessage() for r in caplog.records)
    assert "srcdoc=" in model.plan._repr_html_()
    assert "not made yet" in reprise.compile(Mlp()).plan._repr_html_()


def test_the_trace_has_every_run_and_the_memory(model: torch.nn.Module, data: dict[str, Any], tmp_path: Path) -> None:
    events = json.loads(model.plan.trace(tmp_path / "trace.json").read_text())["traceEvents"]
    runs = [e for e in events if e["ph"] == "X"]
    assert len(runs) == len(data["planned_runs"]["op"])
    assert sum(e["cat"] == "recomputed" for e in runs) == sum(data["recomputed"]["runs"])
    assert "layers.0" in runs[0]["name"]
    memory = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "memory"]
    assert max(memory) == model.plan.peak_bytes
    assert data["outside_bytes"] > 0 and [e["args"]["peak_bytes"] for e in runs] == data["planned_runs"]["during_bytes"]
    measured = [e["args"]["bytes"] for e in events if e["name"] == "memory, measured"]
    assert memory[1:] == measured  # The first number is that of the start of the step, where nothing is measured.


def test_the_snapshot_is_one_of_pytorchs(model: torch.nn.Module, tmp_path: Path) -> None:
    from torch.cuda._memory_viz import segment_plot, segsum, trace, trace_plot

    snapshot = pickle.loads(model.plan.snapshot(tmp_path / "plan.pickle").read_bytes())
    assert "<script" in trace_plot(snapshot) and "<script" in segment_plot(snapshot)
    assert "segments: 1\n" in segsum(snapshot) and f"{len(snapshot['device_traces'][0])} entries" in trace(snapshot)
    allocated = highest = 0
    live: dict[int, int] = {}
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
            allocated += event["size"]
        elif event["action"] == "free_completed":
            allocated -= live.pop(event["addr"])
        highest = max(highest, allocated)
    costs = model.plan.costs
    step = _core.simulate(model.plan.graph, costs, model.plan.actions)
    # In the snapshot, a workspace and the results of its op come one after the other; in the plan they exist at the same time.
    assert highest <= step.peak_bytes
    assert highest > step.peak_bytes - max(1, *costs.workspace_bytes) - 1
    (segment,) = snapshot["segments"]
    active = {b["address"]: b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
    assert active == live
    assert segment["allocated_size"] == segment["active_size"] == segment["requested_size"] == sum(live.values())
    assert segment["total_size"] == sum(b["size"] for b in segment["blocks"])
    end = segment["address"]
    for block in segment["blocks"]:  # They lie one after the other, without gaps.
        assert block["address"] == end
        end += block["size"]
