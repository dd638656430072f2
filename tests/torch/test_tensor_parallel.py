"""Models with distributed parameters, in two processes: bits of eager tensor parallel, the budget, one plan, errors in all."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import tensor_parallel_cases as cases
import torch
import torch.distributed as dist
from several_processes import Results, results_of, run_page
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

import reprise


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", cases.KINDS)
def test_steps_have_the_bits_of_eager_tensor_parallel(results: Results, kind: str) -> None:
    for result in results:
        found = result[kind]
        assert found["none"] == {"same": True, "recompute_ns": 0}
        assert found["half"]["same"] and found["tight"]["same"]
        assert 0 < found["half"]["recompute_ns"] < found["tight"]["recompute_ns"]
        assert found["sums"]  # of gradients over several backwards


@pytest.mark.parametrize("budget", ["half", "tight"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_steps_stay_inside_the_budget(results: Results, kind: str, budget: str) -> None:
    for result in results:
        found = result[kind][budget]
        assert found["measured"] <= found["predicted"] <= found["budget"]
        assert found["most"] <= found["budget"]  # The first steps run other plans.


@pytest.mark.parametrize("budget", ["half", "tight"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_all_processes_make_the_same_collectives_in_the_same_order(results: Results, kind: str, budget: str) -> None:
    first, second = (result[kind][budget] for result in results)
    assert first["plan"] == second["plan"]
    assert first["log"] == second["log"] and len(first["log"]) >= 9


def test_gathers_may_run_again_and_reductions_may_not(results: Results) -> None:
    for result in results:
        for kind in cases.KINDS:
            once = result[kind]["once"]
            assert all(runs for name, runs in once.items() if name.startswith(("all_reduce", "reduce_scatter")))
            assert not any(runs for name, runs in once.items() if name.startswith("all_gather"))
        assert any(name.startswith("all_gather") for name in result["sequences"]["tight"]["repeated"])


def test_memory_held_by_one_process_changes_the_plan_of_all(results: Results) -> None:
    first, second = (result["ballast"] for result in results)
    for when in ("before", "some", "after"):
        assert first[when]["plan"] == second[when]["plan"]
        assert first[when]["measured"] <= first[when]["budget"] and second[when]["measured"] <= second[when]["budget"]
    assert first["some"]["recompute_ns"] > max(first["before"]["recompute_ns"], first["after"]["recompute_ns"])
    assert first["same"] and second["same"]
    assert first["too much"] == second["too much"]
    assert first["too much"]["kind"] == "InfeasibleBudget"
    assert first["too much"]["says"].startswith("rank 1: 'Net' cannot be trained inside")


@pytest.mark.parametrize(("name", "kind", "message"), [
    ("a batch of another size at the first call", "RanksDiffer", r"rank 1: .*Long\[9 16 .*rank 0 has .*Long\[8 16 .*pad them"),
    ("a batch of another size", "RanksDiffer", r"rank 1: .*Long\[9 16 .*rank 0 has .*Long\[8 16 "),
    ("an error of the model", "GraphBreak", "rank 1: .*thirteen sentences"),
    ("a budget that is too small", "InfeasibleBudget", "rank 1: 'Net' cannot be trained inside 1000 B"),
    ("memory that was taken between forward and backward", "BudgetExceeded", "rank 1: between forward and backward"),
    ("a tensor that was changed between forward and backward", "ModifiedInPlace", "rank 1: "),
    ("a model that is divided after it was compiled", "Unsupported", ".*compile it after parallelize_module"),
    ("backward in another order", "RanksDiffer", "rank 0: the ranks run backward of different calls"),
])
def test_an_error_of_one_process_is_raised_in_all(results: Results, name: str, kind: str, message: str) -> None:
    first, second = (result["errors"][name] for result in results)
    assert first == second
    assert first["kind"] == kind and first["soon"]
    assert re.match(message, first["says"], re.DOTALL)


def test_steps_after_an_error_are_as_ever(results: Results) -> None:
    for result in results:
        assert all(result["errors"][when]["same"] for when in ("after", "after all", "at the end"))


def test_plans_that_are_given_have_to_be_the_same(results: Results) -> None:
    for result in results:
        found = result["given plans"]
        assert found["same"] and found["is it"]
        assert found["ahead"]["kind"] == "Unsupported"
        assert found["one of them"]["kind"] == "RanksDiffer"
        assert "different plans" in found["one of them"]["says"]


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    yield
    dist.destroy_process_group()


def small() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    return parallelize_module(model, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})


@pytest.mark.parametrize("options", [{"arena": True}, {"defer_logits": True}, {"capture": "online"}, {"engine": "fused"},
                                     {"host_budget": "1MiB"}, {"cuda_graphs": True}], ids=lambda options: next(iter(options)))
def test_what_does_not_work_with_distributed_parameters_is_refused(alone: None, options: dict[str, Any]) -> None:
    model = small()
    with pytest.raises(reprise.Unsupported, match="with distributed parameters"):
        reprise.compile(model, "1GiB", **options)
    model(torch.ones(2, 4)).sum().backward()  # It is as it was.


def test_what_is_turned_on_later_is_refused_as_well(alone: None) -> None:
    model = reprise.compile(small(), "1GiB")
    plan = model.plan
    for turn_on in (lambda: plan.set_cuda_graphs(True), lambda: plan.set_cuda_graphs("auto"), lambda: plan.set_arena(True),
                    lambda: plan.set_slices("close"), lambda: plan.set_host_budget("1MiB")):
        with pytest.raises(reprise.Unsupported, match="with distributed parameters"):
            turn_on()
    plan.set_cuda_graphs(False)
    plan.set_host_budget(0)
    model(torch.ones(2, 4)).sum().backward()


def test_memory_that_a_thread_is_about_to_free_is_waited_for(alone: None) -> None:
    model, x = reprise.compile(small(), "1GiB"), torch.randn(64, 4)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    step()
    model.plan.set_budget(model.plan.peak_bytes)
    step()
    held = [torch.empty(1 << 20)]
    threading.Timer(0.2, held.clear).start()
    step()
    held.append(torch.empty(1 << 20))
    with pytest.raises(reprise.InfeasibleBudget):
        step()


def test_other_functions_refuse_distributed_parameters(alone: None, tmp_path: Path) -> None:
    with pytest.raises(reprise.Unsupported, match=r"preflight.* does not take"):
        reprise.preflight(small(), torch.ones(2, 4), "1GiB")
    with pytest.raises(reprise.Unsupported, match=r"reprise\.export does not take"):
        reprise.export(small(), lambda model, x: model(x).sum(), [torch.ones(2, 4)], tmp_path / "net.program.json")
    with pytest.raises(reprise.Unsupported, match=r"reprise\.verify does not take"):
        reprise.verify(small(), torch.ones(2, 4), "1GiB")
    with pytest.raises(reprise.Unsupported, match="the online mode does not take"), reprise.online("1GiB", small()):
        pass
    with pytest.raises(reprise.Unsupported, match="DistributedDataParallel"):
        reprise.compile(DDP(small(), init_sync=False), "1GiB")


def test_some_of_the_distributed_parameters_may_be_frozen(alone: None) -> None:
    torch.manual_seed(0)
    model, x = small(), torch.randn(2, 4)
    model[0].weight.requires_grad_(False)
    found = []
    for each in (model, reprise.compile(model, "1GiB")):
        each.zero_grad()
        each(x).sum().backward()
        found.append([p.grad if p.grad is None else p.grad.to_local() for p in each.parameters()])
    assert found[0][0] is None and found[1][0] is None
    assert all(torch.equal(a, b) for a, b in zip(found[0][1:], found[1][1:], strict=True))


def test_a_graph_break_is_an_error(alone: None) -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * (2 if x.sum().item() > 0 else 1)

    model = reprise.compile(Breaks(), "1GiB")
    with pytest.raises(reprise.GraphBreak, match="have to be captured"):
        model(torch.ones(2, 4))


def test_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    run_page("tensor_parallel", tmp_path)
