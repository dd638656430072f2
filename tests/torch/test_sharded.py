"""Models of fully_shard (FSDP2) and pipelines in two processes, and models in regions: bits, budget, errors in all processes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import sharded_cases as cases
import torch
import torch.distributed as dist
from several_processes import Results, results_of, run_page
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import reprise
from reprise.api.pipeline import in_flight
from reprise.api.region_steps import Open


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", cases.VARIANTS)
def test_steps_have_the_bits_of_eager_inside_the_budget(results: Results, name: str) -> None:
    for result in results:
        found = result[name]
        assert all(found["same"])
        assert found["same without"]
        assert max(found["measured"]) <= found["budget"]
        assert found["measured"][-1] <= found["predicted"] + found["late"]
        assert found["predicted"] <= found["budget"]


@pytest.mark.parametrize("name", [name for name in cases.VARIANTS if name != "batches of other sizes"])
def test_the_budget_makes_regions_recompute(results: Results, name: str) -> None:
    assert all(result[name]["recompute_ns"] > 0 for result in results)


def test_after_the_first_step_regions_use_the_budget(results: Results) -> None:
    for result in results:
        first, *later = result["default"]["measured"]
        assert first < 0.6 * result["default"]["budget"]
        assert min(later) > 0.9 * result["default"]["budget"]  # Plans of small blocks do not fill it.


def test_regions_of_one_class_are_traced_once(results: Results) -> None:
    assert all(result["one tracing"] == 1 for result in results)


def test_a_model_that_was_restored_trains_as_before(results: Results) -> None:
    assert all(all(result["restored"]) for result in results)


def test_a_refusal_on_one_rank_is_raised_on_all(results: Results) -> None:
    first, second = (result["refused on one rank"] for result in results)
    assert first["told"] == second["told"]
    assert first["told"][0] == "InfeasibleBudget"
    assert first["told"][1].startswith("rank 1: the model cannot be trained inside 1000 B")
    assert len(first["gradient"]) == len(second["gradient"]) > 0  # of the step after it


def test_an_error_of_the_model_on_one_rank_is_raised_on_all(results: Results) -> None:
    assert all(result["fails on one rank"]["told"][:2] == ("RepriseError", "rank 1: ValueError: thirteen texts")
               for result in results)


def test_an_error_of_the_planning_on_one_rank_is_raised_on_all(results: Results) -> None:
    assert all(result["fails while planning"]["told"][1] == "rank 1: ValueError: the optimizer does not say what it needs"
               for result in results)


def test_a_refusal_in_backward_on_one_rank_is_raised_on_all(results: Results) -> None:
    first, second = (result["fails in backward"]["told"] for result in results)
    assert first == second
    assert first[0] == "InfeasibleBudget" and first[1].startswith("rank 1: the model cannot be trained inside 8.00 MiB")
    assert "set all gradients to None before you run the step again" in first[1]


def test_the_budget_that_a_refusal_names_is_enough(results: Results) -> None:
    for result in results:
        assert result["too small"]["told"][0] == "InfeasibleBudget"
        assert not result["too small"]["again"]


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_micro_batches_in_flight_share_the_budget(results: Results, name: str) -> None:
    for result in results:
        found = result[name]
        assert all(found["same"])
        assert found["same without"]
        assert max(found["measured"]) <= found["budget"]
        assert found["recompute_ns"] > 0
        assert found["calls"] == 8 * cases.SCHEDULES[name][1]


def test_a_refusal_of_one_stage_is_raised_on_all(results: Results) -> None:
    assert all(result["too small for one stage"]["told"][1].startswith("rank 1: the model cannot be trained inside 1000 B")
               for result in results)


@pytest.mark.parametrize(("micro_batches", "rank", "ranks", "expected"), [(8, 0, 4, 4), (8, 3, 4, 1), (2, 0, 4, 2)])
def test_micro_batches_in_flight_are_counted(micro_batches: int, rank: int, ranks: int, expected: int) -> None:
    class Action:
        def __init__(self, name: str) -> None:
            self.computation_type = type("Kind", (), {"name": name})

    ahead = min(ranks - rank, micro_batches)
    order = ["FORWARD"] * ahead + ["FULL_BACKWARD", "FORWARD"] * (micro_batches - ahead) + ["FULL_BACKWARD"] * ahead
    stage = type("Stage", (), {"group_rank": rank})
    schedule = type("Schedule", (), {"_stage": stage, "pipeline_order": {rank: [None, *map(Action, order)]}})
    assert in_flight(schedule) == expected
    schedule.pipeline_order[rank].append(Action("BACKWARD_INPUT"))
    with pytest.raises(reprise.Unsupported, match="backward in two parts"):
        in_flight(schedule)


# -- Regions in one process.

BUDGET = "1200KiB"


def in_regions(budget: str | None = BUDGET, **options: Any) -> cases.Net:
    torch.manual_seed(0)
    model = cases.Net()
    reprise.compile(model, budget, regions=model.blocks, planning_seconds=1, **options)
    return model


def test_a_region_that_cannot_be_captured_runs_without_a_plan(caplog: pytest.LogCaptureFixture) -> None:
    class Asks(cases.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (2 if x.sum().item() > 1e9 else 1)

    gradients = []
    for plans in (False, True):
        torch.manual_seed(0)
        model = cases.Net()
        model.blocks[1] = Asks()
        if plans:
            reprise.compile(model, "2MiB", regions=model.blocks, planning_seconds=1)
        torch.manual_seed(1)
        cases.loss_of(model).backward()
        gradients.append([cases.bits_of(p.grad) for p in model.parameters() if p.grad is not None])
    assert gradients[0] == gradients[1]
    assert "blocks.1 cannot be captured, and runs without a plan" in caplog.text
    assert [part.name for part in reprise.explain(model).parts] == ["blocks.0", "blocks.2", "blocks.3"]


def test_explain_shows_how_regions_share_the_budget() -> None:
    model = in_regions()
    with pytest.raises(reprise.RepriseError, match="no plan yet"):
        reprise.explain(model)
    for _ in range(3):
        cases.loss_of(model).backward()
    division = reprise.explain(model)
    assert [part.name for part in division.parts] == [f"blocks.{i}" for i in range(4)]
    assert division.peak_bytes <= division.budget_bytes
    assert "recomputation" in str(division) and "blocks.3" in str(division)
    assert repr(model.plan).startswith("DividedPlan(4 regions, peak")


def test_calls_without_gradients_run_as_before() -> None:
    model = in_regions()
    with torch.no_grad():
        model(torch.zeros(2, 8, dtype=torch.int64))
    assert not model.plan.ready
    model.blocks[0](torch.zeros(2, 8, cases.WIDTH)).sum().backward()  # not called by the model
    assert not model.plan.ready


def test_a_budget_can_change_between_steps() -> None:
    model = in_regions("64MiB")
    for _ in range(3):
        cases.loss_of(model).backward()
    assert model.plan.recompute_ns == 0
    model.plan.set_budget(model.plan.measured_peak_bytes * 8 // 10)
    cases.loss_of(model).backward()
    assert model.plan.recompute_ns > 0
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes


def test_memory_that_the_caller_holds_is_planned_for() -> None:
    model = in_regions("2MiB")
    for _ in range(3):
        cases.loss_of(model).backward()
    before = model.plan.recompute_ns
    held = torch.zeros(200 * 1024)
    cases.loss_of(model).backward()
    assert model.plan.recompute_ns > before
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes
    del held


def test_calls_whose_results_are_dropped_leave_nothing() -> None:
    model = in_regions()
    for _ in range(4):
        cases.loss_of(model)
    left = [thing for thing in gc.get_objects() if type(thing) is Open]
    assert len(left) <= len(model.blocks)  # those of the latest call


def test_a_model_that_nobody_holds_is_freed() -> None:
    model = in_regions()
    for _ in range(2):
        cases.loss_of(model).backward()
    weight = weakref.ref(model.head.weight)
    del model
    gc.collect()
    assert weight() is None


@pytest.mark.parametrize("options", [{"arena": True}, {"defer_logits": True}, {"capture": "online"}, {"engine": "fused"},
                                     {"host_budget": 100}, {"loss": nn.CrossEntropyLoss()}, {"slices": "close"}],
                         ids=lambda options: next(iter(options)))
def test_what_does_not_work_in_regions_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(reprise.Unsupported, match=f"{next(iter(options))}=.* in regions"):
        in_regions(**options)


def test_regions_have_to_be_apart_and_inside_the_model() -> None:
    model = cases.Net()
    with pytest.raises(ValueError, match=r"blocks\.0 is inside of blocks: regions cannot contain one another"):
        reprise.compile(model, BUDGET, regions=[model.blocks, model.blocks[0]])
    with pytest.raises(ValueError, match="takes modules of the model, not Linear"):
        reprise.compile(model, BUDGET, regions=[nn.Linear(2, 2)])
    assert "plan" not in model.__dict__


def test_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    run_page("fsdp", tmp_path)


def test_what_takes_no_sharded_model_says_so(tmp_path: Path) -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    try:
        model = fully_shard(nn.Linear(2, 2))
        with pytest.raises(reprise.Unsupported, match=r"reprise\.verify does not take .* or fully_shard"):
            reprise.verify(model, torch.ones(1, 2))
        with pytest.raises(reprise.Unsupported, match=r"preflight, curve.* does not"):
            reprise.preflight(model, torch.ones(1, 2), "1GiB")
        with pytest.raises(reprise.Unsupported, match=r"reprise\.export does not"):
            reprise.export(model, nn.MSELoss(), [torch.ones(1, 2)], tmp_path / "step.program.json")
        wrapped = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2)))
        with pytest.raises(reprise.Unsupported, match="DistributedDataParallel is not supported for a model that is planned in"):
            reprise.compile(wrapped, BUDGET, regions=wrapped.module)
    finally:
        dist.destroy_process_group()
