"""Models inside DistributedDataParallel, in two processes: bits of DDP, the budget, early gradients, errors in all processes."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import data_parallel_cases as cases
import pytest
import torch
import torch.distributed as dist
from several_processes import Results, results_of, run_page
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import reprise


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", cases.VARIANTS)
def test_steps_have_the_bits_of_ddp_inside_the_budget(results: Results, name: str) -> None:
    for result in results:
        found = result[name]
        if cases.RANKS == 2:
            assert all(found["same"])
        else:  # Exception: sums of more than two processes depend on DDP's buckets, divided by the order of gradients.
            assert all(found["same"][:found["of first step"]])
        assert found["recompute_ns"] > 0
        assert found["measured"] <= found["predicted"] <= found["budget"]


def test_the_peak_is_predicted_to_the_byte_but_for_the_loss(results: Results) -> None:
    for result in results:
        found = result["default"]
        assert found["predicted"] - found["measured"] <= 8 * 10 * 8


def test_buckets_leave_before_backward_ends(results: Results) -> None:
    for result in results:
        events = result["order of buckets"]
        assert events.count("end") == 2
        second = events[events.index("end") + 1:]  # Buckets are divided anew after the first step.
        assert second.count("bucket") > 2
        assert second.index("end") >= 2


def test_a_model_that_was_restored_trains_as_before(results: Results) -> None:
    assert all(all(result["restored"]) for result in results)


@pytest.mark.parametrize(("name", "kind", "message"), [
    ("a budget that is too small", "InfeasibleBudget", "rank 1: 'Net' cannot be trained inside 1000 B"),
    ("an error of the model", "GraphBreak", "rank 1: .*thirteen images"),
    ("memory that was taken", "BudgetExceeded", "rank 1: between forward and backward .* were allocated and kept"),
    ("a weight that was changed", "ModifiedInPlace", "rank 1: "),
])
def test_an_error_of_one_process_is_raised_in_all(results: Results, name: str, kind: str, message: str) -> None:
    first, second, *_ = (result[name] for result in results)
    assert first["told"] == second["told"]
    assert first["told"][0] == kind
    assert re.match(message, first["told"][1], re.DOTALL)
    assert first["gradient"] == second["gradient"]  # of the step after it


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("options", [{"arena": True}, {"defer_logits": True}, {"capture": "online"}, {"engine": "fused"}],
                         ids=lambda options: next(iter(options)))
def test_what_does_not_work_inside_ddp_is_refused(alone: None, options: dict[str, Any]) -> None:
    model = DDP(nn.Linear(4, 4))
    with pytest.raises(reprise.Unsupported, match=f"{next(iter(options))}=.* inside DistributedDataParallel"):
        reprise.compile(model, "1GiB", **options)
    model(torch.ones(2, 4)).sum().backward()  # It is as it was.


def test_a_model_that_nobody_holds_is_freed(alone: None) -> None:
    model = reprise.compile(DDP(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), "1GiB")
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
    weight = weakref.ref(model.module[0].weight)
    del model
    gc.collect()
    assert weight() is None


def test_a_graph_break_is_an_error_inside_ddp(alone: None) -> None:
    class Breaks(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (2 if x.sum().item() > 0 else 1)

    model = reprise.compile(DDP(Breaks(4, 4)), "1GiB")
    with pytest.raises(reprise.GraphBreak, match="have to be captured"):
        model(torch.ones(2, 4))


def test_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    run_page("ddp", tmp_path)
