"""reprise.shard in two processes: bits of FSDP2, the budget, gathers in the plan, checkpoints, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shard_cases as cases
import torch
import torch.distributed as dist
from several_processes import Results, results_of, run_page
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

import reprise

KINDS = ["even", "odd", "replicated"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_have_the_bits_of_fsdp2(results: Results, kind: str) -> None:
    for result in results:
        found = result[kind]
        assert found["none"] == {"same": True, "recompute_ns": 0}
        assert found["least"]["same"] and found["least"]["recompute_ns"] > 0


def test_a_smaller_budget_recomputes_more(results: Results) -> None:
    for result in results:
        found = result["even"]
        assert found["half"]["same"]
        assert 0 < found["half"]["recompute_ns"] < found["least"]["recompute_ns"]


@pytest.mark.parametrize(("kind", "budget"), [("even", "half"), *((kind, "least") for kind in KINDS)])
def test_steps_stay_inside_the_budget(results: Results, kind: str, budget: str) -> None:
    for result in results:
        found = result[kind][budget]
        assert found["measured"] <= found["predicted"] <= found["budget"]
        assert found["most"] <= found["budget"]  # The first steps run other plans.
    assert results[0][kind][budget]["plan"] == results[1][kind][budget]["plan"]


def test_a_small_budget_gathers_again(results: Results) -> None:
    for result in results:
        assert any(name.startswith("all_gather") for name in result["even"]["least"]["repeated"])
        assert any(not name.startswith("all_gather") for name in result["even"]["least"]["repeated"])
        names = [name for name, _ in result["even"]["log"]]
        assert names.count("_c10d_functional::all_gather_into_tensor") > 13


def test_collectives_go_on_beside_other_ops(results: Results) -> None:
    for result in results:
        found = result["even"]
        at_once, products = found["under way"]
        assert at_once == 1 and products > 1
        exposed, time = found["exposed"]
        assert 0 < exposed < time
        assert "collectives, 0 of them again; the step waits" in found["explained"]


def test_steps_after_one_that_fails_with_collectives_on_their_way_are_as_ever(results: Results) -> None:
    for result in results:
        assert result["thrown"]["in flight"] > 0 and result["thrown"]["same"]


def test_a_parameter_is_gathered_and_reduced_once_however_often_it_is_read(results: Results) -> None:
    sharded = sum(1 for _ in cases.Net().parameters())
    for result in results:
        once = result["even"]["once"]
        assert [runs for name, runs in once if name.startswith("all_gather")] == [False] * 2 * sharded  # starts and waits
        assert [runs for name, runs in once if name.startswith("reduce_scatter")] == [True] * 2 * sharded


def test_a_whole_parameter_may_be_returned(results: Results) -> None:
    for result in results:
        for name in ("none", "least"):
            assert result["returned"][name]["same"]
        least = result["returned"]["least"]
        assert least["recompute_ns"] > 0 and least["most"] <= least["predicted"] <= least["budget"]


def test_gradients_are_added_over_several_backwards(results: Results) -> None:
    assert all(result["even"]["sums"] and result["even"]["recompute_ns"] > 0 for result in results)


def test_gradients_that_are_left_unreduced_have_the_bits_of_fsdp2(results: Results) -> None:
    for result in results:
        assert result["unreduced"]["same"] and result["unreduced"]["least"]["same"]
        assert result["odd"]["unreduced"] and result["replicated"]["unreduced"]


def test_gradients_that_are_left_unreduced_wait_where_the_optimizer_does_not_see_them(results: Results) -> None:
    sharded = sum(1 for _ in cases.Net().parameters())
    for result in results:
        found = result["unreduced"]
        assert (found["of optimizer"], found["waiting"]) == (0, sharded)
        assert found["left"] == 0  # once they are reduced
        assert not any("reduce" in name for name in found["log"])
        assert sum("reduce" in name for name in found["log of last"]) == sharded


def test_gradients_that_are_left_unreduced_are_inside_the_budget(results: Results) -> None:
    for result in results:
        assert result["unreduced"]["is as before"]  # after a step that was refused
        least = result["unreduced"]["least"]
        assert least["recompute_ns"] > 0
        assert least["measured"] <= least["predicted"] <= least["budget"]
        assert least["most"] <= least["budget"]


def test_a_mesh_of_two_dimensions_shards_and_replicates_with_the_bits_of_fsdp2(results: Results) -> None:
    sharded = sum(1 for _ in cases.Net().parameters())
    for result in results:
        for found, replicas in zip(result["hybrid"], (1, 2), strict=True):
            assert found["none"] == {"same": True, "recompute_ns": 0}
            least = found["least"]
            assert least["same"] and least["recompute_ns"] > 0
            assert least["measured"] <= least["predicted"] <= least["budget"]
            assert least["most"] <= least["budget"]
            assert replicas == 1 or (found["unreduced"] and found["odd"])
            assert found["placements"] == "(Replicate(), Shard(dim=0))"
            for kind, many in (("reduce_scatter", sharded), ("all_reduce", sharded * (replicas - 1))):
                runs = [once for name, once in found["once"] if name.startswith(kind)]
                assert runs == [True] * 2 * many  # starts and waits


def test_parameters_are_divided_where_all_processes_get_the_same(results: Results) -> None:
    # scale, then weights and biases of grow, shrink, head and mix
    expected = ["R", "S(0)", "S(0)", "S(1)", "R", "S(0)", "S(0)", "R", "R"]
    for result in results:
        assert result["odd"]["placements"] == expected
        assert result["replicated"]["placements"] == ["R"] * 9
        assert result["odd"]["frozen"] == [False, True] + [False] * 7


def test_checkpoints_go_both_ways(results: Results) -> None:
    assert all(result["checkpoints"] == {"plain": True, "fsdp2": True, "back": True} for result in results)


def test_outside_of_steps_the_model_is_as_before_with_its_parameters_in_parts(results: Results) -> None:
    for result in results:
        found = result["outside"]
        assert (found.pop("whole"), found.pop("part"), found.pop("takes")) == ((128, 32), (64, 32), 4 * 64 * 32)
        assert all(found.values()), found


def test_preflight_forecasts_the_step_of_a_rank(results: Results) -> None:
    """In one process, without the other."""
    for result in results:
        for found in result["forecasts"]:
            assert found["forecast step"] == found["step"]
            assert found["forecast"] - found["state"] == found["peak"] >= found["measured"]
            assert found["estimated"] == 0


def test_the_smallest_budget_that_preflight_names_is_enough(results: Results) -> None:
    for result in results:
        for found in result["forecasts"]:
            assert found["measured in it"] <= found["predicted in it"] <= found["smallest"] - found["state"]
            assert found["smallest"] < found["forecast"]
            assert found["recompute_ns"] > 0


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    yield
    dist.destroy_process_group()


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def with_gradients() -> nn.Module:
    model = small()
    model(torch.ones(2, 4)).sum().backward()
    return model


def in_two_pieces() -> nn.Module:
    model = small()
    model[0].weight = nn.Parameter(torch.ones(4, 8).t())
    return model


def with_hook() -> nn.Module:
    model = small()
    model[0].weight.register_hook(lambda gradient: gradient)
    return model


def twice() -> nn.Module:
    return reprise.shard(small(), init_device_mesh("cpu", (1,)))


@pytest.mark.parametrize(("made", "message"), [
    (twice, r"'0.weight' is distributed already \(DTensor\), by reprise.shard"),
    (lambda: fully_shard(small()), "'0.weight' is distributed already"),
    (lambda: DDP(small()), "without DistributedDataParallel"),
    (lambda: nn.Sequential(DDP(small())), "DistributedDataParallel inside another module"),
    (lambda: reprise.compile(small(), "1GiB"), "call reprise.shard before reprise.compile"),
    (lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4, device="meta")), r"several devices \(cpu, meta\): move it to one"),
    (lambda: nn.LSTM(4, 4), r"module '' \(LSTM\) also holds its parameters in '_flat_weights'"),
    (lambda: nn.LazyLinear(4), "'weight' has no shape yet: call the model once"),
    (with_gradients, "'0.weight' has a gradient: call reprise.shard before"),
    (in_two_pieces, "'0.weight' does not lie in one piece"),
    (with_hook, "'0.weight' has hooks"),
], ids=["sharded already", "fully_shard", "DDP", "DDP inside", "compiled", "devices", "LSTM", "lazy", "gradient",
        "pieces", "hooks"])
def test_what_cannot_be_sharded_is_refused(alone: None, made: Any, message: str) -> None:
    model = made()
    parameters = list(model.parameters())
    with pytest.raises(reprise.Unsupported, match=message):
        reprise.shard(model, init_device_mesh("cpu", (1,)))
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))  # It is as it was.


def test_meshes_and_placements_that_do_not_work_are_refused(alone: None) -> None:
    mesh = init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("pp", "dp", "tp"))
    with pytest.raises(reprise.Unsupported, match=r"and this one has 3: .*mesh\[\"dp\"\]"):
        reprise.shard(small(), mesh)
    with pytest.raises(ValueError, match=r"'hybrid': choose 'shard' or 'replicate'.* a mesh of two dimensions"):
        reprise.shard(small(), mesh["dp"], placement="hybrid")
    with pytest.raises(TypeError, match=r"takes a torch\.nn.Module, not list"):
        reprise.shard([], mesh["dp"])  # type: ignore[arg-type]


def test_what_does_not_work_with_a_sharded_model_is_refused(alone: None) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    reprise.shard(model, init_device_mesh("cpu", (1,)))
    with pytest.raises(reprise.Unsupported, match=r"reprise\.shard is not supported for a model that is planned in regions"):
        reprise.compile(model, "1GiB", regions=[model[0]])
    with pytest.raises(ValueError, match=r"has none of the model's parameters: make it after reprise\.shard or"):
        reprise.compile(model, "1GiB", optimizer=optimizer)


def test_a_sharded_model_trains_without_a_plan(alone: None) -> None:
    """And one whose plan was taken away."""
    torch.manual_seed(0)
    plain = small()
    torch.manual_seed(0)
    model = reprise.shard(small(), init_device_mesh("cpu", (1,)), placement="replicate")
    x = torch.randn(2, 4)
    for each in (plain, model, reprise.restore(reprise.compile(model, "1GiB"))):
        each.zero_grad()
        each(x).sum().backward()
    assert all(torch.equal(a.grad, b.grad.to_local()) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


class Halves(nn.Module):
    """Which of them a call reads is up to the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *names: str) -> torch.Tensor:
        return sum(getattr(self, name)(x).square().mean() for name in names)


def halves(**options: Any) -> Any:
    torch.manual_seed(0)
    return reprise.shard(Halves(), init_device_mesh("cpu", (1,)), **options)


def test_gradients_are_left_unreduced_in_one_process(alone: None) -> None:
    torch.manual_seed(0)
    plain, model = Halves(), reprise.compile(halves(), "1GiB")
    for i, names in enumerate((("left",), ("left", "right"), ("right", "left"))):
        model.set_requires_gradient_sync(i == 2)
        x = torch.randn(2, 4)
        for each in (plain, model):
            each(x, *names).backward()
    assert all(torch.equal(a.grad, b.grad.to_local()) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


def test_gradients_that_would_be_lost_or_reduced_twice_are_refused(alone: None) -> None:
    model, x = reprise.compile(halves(), "1GiB"), torch.randn(2, 4)

    def refused(step: Callable[[], object], message: str) -> None:
        with pytest.raises(reprise.RepriseError, match=message):
            step()

    loss = model(x, "left")
    model.set_requires_gradient_sync(False)
    refused(loss.backward, "between a call of the model and its backward")
    model(x, "left", "right").backward()
    model.set_requires_gradient_sync(True)
    refused(lambda: model(x, "left"), "'right.weight' has a gradient that was left unreduced.* does not read it")
    first, second = model(x, "left", "right"), model(x, "left", "right")
    first.backward()
    refused(second.backward, "have changed between a call of the model")


def test_gradients_are_left_unreduced_by_a_plan_alone(alone: None) -> None:
    model, x = halves(), torch.randn(2, 4)
    model.set_requires_gradient_sync(False)
    with torch.no_grad():
        model(x, "left")
    with pytest.raises(reprise.RepriseError, match=r"where steps are planned: pass the model to reprise\.compile"):
        model(x, "left")
    model.set_requires_gradient_sync(True)
    model(x, "left").backward()
    with pytest.raises(reprise.Unsupported, match=r"computed in torch\.float32 and averaged in torch\.bfloat16"):
        halves(reduce_dtype=torch.bfloat16).set_requires_gradient_sync(False)


def test_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    run_page("shard", tmp_path)
