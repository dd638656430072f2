"""Tests what only CUDA has: its allocator, its graphs, its libraries. Training loops and networks are tested
on CUDA by the other tests (REPRISE_TEST_DEVICE=cuda, make matrix DEVICE=cuda)."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models.zoo import CASES
from steps import bits_of, compiled, different, model_of, run_step
from torch import Tensor, nn

import reprise
from reprise.native import _torch

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
              pytest.mark.usefixtures("deterministic")]
GPU = torch.device("cuda", 0)


class Net(nn.Module):
    """A network with convolution, batch norm, dropout, in-place ReLU and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Dropout(0.2))
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = (x + self.second(x)).relu_()
        x = x.flatten(2).transpose(1, 2)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def images(seed: int = 0, rows: int = 16) -> Tensor:
    return torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(seed)).to(GPU)


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().to(GPU)


def loss_of(model: nn.Module, seed: int = 0, rows: int = 16) -> Tensor:
    return nn.functional.cross_entropy(model(images(seed, rows)), torch.arange(rows, device=GPU) % 10)


def state(model: nn.Module) -> dict[str, Any]:
    bits = {name: bits_of(t) for name, t in model.state_dict().items()}
    bits |= {f"gradient {name}": bits_of(p.grad) for name, p in model.named_parameters()}
    return bits | {"generator": bits_of(torch.cuda.get_rng_state(GPU))}


def trained(model: nn.Module, steps: int = 6, accumulate: int = 1) -> dict[str, Any]:
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    bits: dict[str, Any] = {}
    for i in range(steps):
        for part in range(accumulate):
            loss = loss_of(model, 10 * i + part)
            loss.backward()
        bits |= {f"{i} {name}": value for name, value in state(model).items()} | {f"{i} loss": bits_of(loss)}
        optimizer.step()
        optimizer.zero_grad()
    return bits


def assert_same_bits(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert [name for name in a if a[name] != b[name]] == []


def tight(model: nn.Module) -> nn.Module:
    """The model, compiled for a budget between the smallest and the plain peak."""
    trial = reprise.compile(copy.deepcopy(model), cuda_graphs=False)
    for _ in range(3):
        loss_of(trial).backward()
        trial.zero_grad()
    plain = trial.plan.peak_bytes
    smallest = trial.plan.smallest_budget_bytes(5.0)
    return reprise.compile(model, (plain + smallest) // 2 + (1 << 20), cuda_graphs=False)


def test_training_has_the_bits_of_eager_and_stays_inside() -> None:
    eager = trained(net())  # It comes first, so that libraries have allocated what they keep.
    planned = tight(net())
    assert_same_bits(eager, trained(planned))
    assert planned.plan.recompute_ns > 0
    assert planned.plan.measured_peak_bytes <= planned.plan.peak_bytes <= planned.plan.budget_bytes


@pytest.mark.parametrize("name", ["unet", "dropout_transformer", "hf_gpt2"])
def test_the_predicted_peak_is_the_allocators(name: str) -> None:
    case = CASES[name]
    model = compiled(model_of(case, device=GPU), cuda_graphs=False)
    for _ in range(3):
        run_step(model, case)
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes


def test_backward_of_a_large_convolution_never_holds_input_and_gradient_together() -> None:
    """As one call, it would hold both at the same time, and no plan could go below that."""
    def make() -> nn.Module:
        torch.manual_seed(0)
        layers = [layer for width in (3, 16) for layer in (nn.Conv2d(width, 16, 3, padding=1), nn.Tanh())]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(GPU)

    def step(model: nn.Module) -> dict[str, Any]:
        model(x).square().mean().backward()
        bits = {name: bits_of(parameter.grad) for name, parameter in model.named_parameters()}
        model.zero_grad()
        return bits

    x = torch.rand(8, 3, 128, 128, device=GPU)
    plain = reprise.compile(make(), cuda_graphs=False)
    step(plain)
    costs, outside = plain.plan.costs, plain.plan.outside_bytes
    budget = plain.plan.smallest_budget_bytes(5.0) + (1 << 20)
    del plain
    planned = reprise.compile(make(), budget, cuda_graphs=False)
    bits = [step(planned) for _ in range(3)]
    assert_same_bits(step(make()), bits[-1])
    assert planned.plan.measured_peak_bytes == planned.plan.peak_bytes <= budget
    one = 8 * 16 * 128 * 128 * 4  # the bytes of a result of a convolution
    assert planned.plan.peak_bytes - outside < 3 * one + max(costs.workspace_bytes)


def test_the_users_own_peak_is_left_alone_after_the_first_steps() -> None:
    model = reprise.compile(net(), "1GiB", cuda_graphs=False)
    for _ in range(8):
        loss_of(model).backward()
        model.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss_of(model).backward()
    assert torch.cuda.max_memory_allocated() > before + (1 << 20)
    assert torch.cuda.max_memory_allocated() <= model.plan.peak_bytes


def test_a_model_on_a_named_device_and_a_stream_of_its_own() -> None:
    def on_stream(model: nn.Module) -> dict[str, Any]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            bits = trained(model, 3)
        torch.cuda.current_stream().wait_stream(stream)
        return bits

    assert_same_bits(on_stream(net()), on_stream(reprise.compile(net(), "1GiB", cuda_graphs=False)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("graphs", [False, True])
def test_autocast_and_a_gradient_scaler(dtype: torch.dtype, graphs: bool) -> None:
    def loop(model: nn.Module) -> dict[str, Any]:
        torch.manual_seed(3)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16, init_scale=1024.0)
        for i in range(6):
            with torch.autocast("cuda", dtype=dtype):
                loss = loss_of(model, i)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if i < 5:
                optimizer.zero_grad()
        return state(model) | {"loss": bits_of(loss), "scale": scaler.get_scale()}

    assert_same_bits(loop(net()), loop(reprise.compile(net(), "1GiB", cuda_graphs=graphs)))


def test_running_out_of_memory_leaves_nothing_behind() -> None:
    model = reprise.compile(net(), cuda_graphs=False)
    loss_of(model).backward()
    model.zero_grad()
    expected = trained(net(), 2)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(GPU).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total, GPU)
    try:
        with pytest.raises(torch.cuda.OutOfMemoryError):
            loss_of(model).backward()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    model.zero_grad()
    assert torch.cuda.memory_allocated() <= before + 4096
    fresh = net()
    model.load_state_dict(fresh.state_dict())
    assert_same_bits(expected, trained(model, 2))


class TestGraphs:
    """Training with cuda_graphs=True."""

    @staticmethod
    def graphed(budget: Any = "1GiB") -> nn.Module:
        return reprise.compile(net(), budget, cuda_graphs=True)

    def test_training_has_the_bits_of_eager(self) -> None:
        model = self.graphed()
        assert_same_bits(trained(net()), trained(model))
        assert model.plan.cuda_graphs.recorded
        assert model.plan.cuda_graphs.recordings == 1

    def test_gradients_of_micro_batches_add_up_as_eager_adds_them(self) -> None:
        model = self.graphed()
        assert_same_bits(trained(net(), accumulate=3), trained(model, accumulate=3))
        assert model.plan.cuda_graphs.recorded

    def test_pool_and_all_beside_it_stay_inside_the_budget(self) -> None:
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(10)]
        deep = nn.Sequential(nn.Conv2d(3, 32, 1), *blocks, nn.Flatten(), nn.Linear(32 * 256, 10)).to(GPU)
        model = reprise.compile(deep, "8GiB", cuda_graphs=True)

        def step() -> None:
            loss_of(model, rows=256).backward()
            model.zero_grad()

        for _ in range(4):
            step()
        plain, pool = model.plan.peak_bytes, model.plan.cuda_graphs.pool_bytes
        for part in (8, 4):
            model.plan.set_budget(plain - pool // part)
            step()
            assert model.plan.cuda_graphs.pool_bytes < pool
            assert model.plan.recompute_ns > 0
            torch.cuda.reset_peak_memory_stats()
            step()
            hidden = model.plan.cuda_graphs.hidden_bytes
            measured = max(torch.cuda.max_memory_allocated() + hidden, model.plan.measured_peak_bytes)
            assert measured <= model.plan.peak_bytes <= model.plan.budget_bytes

    def test_recording_again_and_again_leaves_nothing_behind(self) -> None:
        model = self.graphed("8GiB")
        levels, recordings = [], []
        for i in range(7):
            loss_of(model).backward()
            model.zero_grad()
            recordings.append(model.plan.cuda_graphs.recordings)
            if i >= 2:
                model.plan.release_graphs()
                levels.append(torch.cuda.memory_allocated())
        assert recordings[-1] >= 4
        assert levels[-1] == levels[0]

    def test_what_is_handed_out_stays_as_it_was(self) -> None:
        model = self.graphed()
        trained(model, 4)
        first = model(images(1))
        content = bits_of(first)
        first.sum().backward()
        gradient = model.head.weight.grad
        gradient_content = bits_of(gradient)
        model.zero_grad()
        model(images(2)).sum().backward()
        assert model.plan.cuda_graphs.recorded
        assert bits_of(first) == content
        assert bits_of(gradient) == gradient_content

    def test_a_second_forward_before_backward_runs_beside_the_graphs(self) -> None:
        def loop(model: nn.Module) -> dict[str, Any]:
            trained(model, 4)
            torch.manual_seed(5)
            first, second = loss_of(model, 1), loss_of(model, 2)
            second.backward()
            first.backward()
            loss_of(model, 3).backward()
            return state(model)

        model = self.graphed()
        assert_same_bits(loop(net()), loop(model))
        assert model.plan.cuda_graphs.recorded

    def test_a_forward_without_backward_frees_the_graphs_again(self) -> None:
        model = self.graphed()
        trained(model, 4)
        loss = loss_of(model)
        assert model.plan.cuda_graphs.pending
        del loss
        assert not model.plan.cuda_graphs.pending

    def test_parameters_that_moved_are_read_where_they_are(self) -> None:
        def loop(model: nn.Module) -> dict[str, Any]:
            bits = trained(model, 4)
            with torch.no_grad():
                model.head.weight.data = model.head.weight.data.clone() * 1.5
            return bits | trained(model, 4)

        model = self.graphed()
        assert_same_bits(loop(net()), loop(model))
        assert model.plan.cuda_graphs.recordings == 2

    def test_a_parameter_changed_before_backward_is_an_error(self) -> None:
        model = self.graphed()
        trained(model, 4)
        loss = loss_of(model)
        with torch.no_grad():
            model.head.weight.mul_(2)
        with pytest.raises(reprise.ModifiedInPlace, match="modified by an inplace operation"):
            loss.backward()
        model.zero_grad()
        loss_of(model).backward()

    def test_a_budget_without_room_for_the_copies_is_refused_by_name(self) -> None:
        trial = reprise.compile(net(), cuda_graphs=False)
        loss_of(trial).backward()
        trial.zero_grad()
        smallest = trial.plan.smallest_budget_bytes(5.0)
        del trial
        with pytest.raises(reprise.RepriseError, match="cannot run as CUDA graphs"):
            trained(self.graphed(smallest + (1 << 20)))

    def test_auto_takes_graphs_where_launching_is_what_takes_time(self) -> None:
        expected = trained(net(), 10)
        for bound, taken in ((0.0, True), (float("inf"), False)):
            model = reprise.compile(net(), "1GiB")
            model.plan.settings.options.launch_bound = bound
            assert_same_bits(expected, trained(model, 10))
            assert model.plan.cuda_graphs.recorded == taken


    def test_a_recording_survives_the_end_of_another(self) -> None:
        first, second = self.graphed(), self.graphed()
        expected = trained(net(), 8)
        trained(second, 4)
        bits = trained(first, 4)
        second.plan.release_graphs()
        torch.cuda.empty_cache()
        filler = torch.full((64 << 20,), float("nan"), device=GPU)
        fresh = net()
        first.load_state_dict(fresh.state_dict())
        assert_same_bits(expected, trained(first, 8))
        assert bits
        del filler

    def test_batches_that_do_not_lie_dense(self) -> None:
        def loop(model: nn.Module) -> dict[str, Any]:
            torch.manual_seed(2)
            wide = torch.randn(16, 3, 16, 20, device=GPU)
            for i in range(5):
                model.zero_grad()
                x = wide[..., i % 4 : i % 4 + 16] if i % 2 == 0 else wide[:1, :, :, :16].expand(16, -1, -1, -1)
                nn.functional.cross_entropy(model(x), torch.arange(16, device=GPU) % 10).backward()
            return state(model)

        assert_same_bits(loop(net()), loop(self.graphed()))


def test_of_many_sizes_those_used_most_run_as_cuda_graphs() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1)))).cuda()
    model = reprise.compile(copy.deepcopy(plain))
    recorded: dict[int, int] = {}
    for i, size in enumerate([8, 12, *(40 if i % 4 else 8 + i for i in range(80))]):
        x = torch.randn(size, 32, device="cuda")
        results = []
        for one in (plain, model):
            torch.manual_seed(i)
            one.zero_grad(set_to_none=True)
            one(x).square().mean().backward()
            results.append([p.grad.clone() for p in one.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True)), (i, size)
        recorded[size] = recorded.get(size, 0) + model.plan.cuda_graphs.recorded
    assert recorded[40] > 40
    assert sum(recorded.values()) == recorded[40]


def test_a_new_batch_size_and_back() -> None:
    case = CASES["dropout_mlp"]

    def loop(model: nn.Module) -> list[Any]:
        return [run_step(model, case, seed=i, batch=rows) for i, rows in enumerate((16, 16, 16, 16, 8, 8, 16, 16))]

    model = reprise.compile(model_of(case, device=GPU), "1GiB", cuda_graphs=True)
    planned = loop(model)
    assert model.plan.cuda_graphs.recorded
    assert [different(a, b) for a, b in zip(loop(model_of(case, device=GPU)), planned, strict=True)] == [[]] * 8


PREFLIGHT = """
import torch, reprise
from reprise.native import _torch
gpu = torch.device("cuda", 0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256)).to(gpu)
x = torch.rand(4096, 256, device=gpu)
found = reprise.preflight(model, x, "1GiB", profile="measure", largest=False)
torch._C._cuda_clearCublasWorkspaces()  # of the thread that has measured
torch.cuda.reset_peak_memory_stats()
for _ in range(2):
    model(x).sum().backward()
    model.zero_grad()
print(found.plain.peak_bytes, torch.cuda.max_memory_allocated(), _torch.CostBook(gpu).kept_bytes)
"""


def test_preflight_counts_what_cublas_keeps(tmp_path: Path) -> None:
    """Preflight runs in a process that has not multiplied any matrices yet."""
    done = subprocess.run([sys.executable, "-c", PREFLIGHT], capture_output=True, text=True, check=False,
                          env=os.environ | {"REPRISE_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    predicted, measured, kept = map(int, done.stdout.split())
    assert predicted - 2 * kept < measured <= predicted


def test_verify_on_the_gpu() -> None:
    result = reprise.verify(net(), images(), "1GiB", loss=lambda y: y.square().mean())
    assert result.ok, str(result)


def test_a_device_without_a_number_is_the_current_one() -> None:
    kept = torch.empty(1 << 20, device="cuda")
    assert _torch.allocated_bytes(torch.device("cuda")) == torch.cuda.memory_allocated() >= kept.nbytes


def test_losses_that_are_kept_are_no_reason_to_record_again() -> None:
    torch.manual_seed(0)
    model = Net().to(GPU)
    x = torch.rand(8, 3, 32, 32, device=GPU)
    plain = reprise.compile(copy.deepcopy(model))
    plain(x).square().mean().backward()
    outside = plain.plan.outside_bytes
    reprise.compile(model, outside + int(0.9 * (plain.plan.peak_bytes - outside)) + (64 << 20), cuda_graphs=True)
    del plain
    kept = []
    for _ in range(40):
        model.zero_grad(set_to_none=True)
        kept.append(model(x).square().mean())
        kept[-1].backward()
    assert model.plan.cuda_graphs.recordings == 1
