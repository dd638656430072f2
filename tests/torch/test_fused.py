"""Tests generated kernels inside a budget: the engine "fused"."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_cases import (
    CASES,
    SLACK,
    Attention,
    Dropouts,
    Perceptron,
    Residual,
    Trained,
    WithLoss,
    budgets,
    check_bits_and_peaks,
    images,
    perceptron,
    same,
)
from torch import Tensor, nn
from torch.nn import functional
from training import DEVICE, batch

import reprise
from reprise.api.fused_step import STEPS_BEFORE, FusedStep
from reprise.api.settings import Settings
from reprise.trace.fused import inductor, internals, saved_steps
from reprise.trace.fused.lowered import FIRST_FORM, Allocation, Extern, Form, Launch

# Beside the package of the build: tests/runtime/train_program.cc
DRIVER = Path(reprise.__file__).parents[2] / "tests" / "runtime" / "train_program"


@pytest.fixture(scope="module", autouse=True)
def one_thread_for_all() -> Iterator[None]:
    """One thread, because each thread of attention takes memory, and it depends on chance whether they do so at the same
    time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=CASES)
def trained(request: pytest.FixtureRequest, one_thread_for_all: None) -> Iterator[Trained]:
    torch.manual_seed(0)
    kind, make_input = CASES[request.param]
    model = reprise.compile(WithLoss(kind()).to(DEVICE), engine="fused", planning_seconds=1)
    model.plan.set_partition("near")  # so that all budgets run the same kernels
    yield Trained(model, make_input())


def test_a_planned_step_has_the_bits_of_the_unplanned_one_inside_its_budget(trained: Trained) -> None:
    check_bits_and_peaks(trained)


def test_so_does_a_step_that_saves_less() -> None:
    torch.manual_seed(0)
    network = WithLoss(nn.Sequential(Residual(), nn.BatchNorm2d(4), nn.SiLU())).to(DEVICE)
    model = reprise.compile(network, engine="fused", planning_seconds=1)
    model.plan.set_partition("far")
    check_bits_and_peaks(Trained(model, images()))
    assert model.plan.partition == "far"


def test_errors_against_fp64_are_those_of_eager(trained: Trained) -> None:
    if isinstance(trained.model.inner, Dropouts):
        pytest.skip("draws other random numbers than eager")
    trained.model.plan.set_budget(None)
    plain = reprise.restore(copy.deepcopy(trained.model))
    exact = Trained(copy.deepcopy(plain).double(), trained.x.double()).step()
    eager, fused = Trained(plain, trained.x).step(), trained.step()
    largest = max(gradient.abs().max() for gradient in exact.values())
    for name, gradient in exact.items():
        scale = gradient.abs().max().clamp_min(largest / 100)  # Some gradients are zero except for rounding.
        error, known = ((values[name] - gradient).abs().max() / scale for values in (fused, eager))
        assert error <= 2 * known + 1e-4, name


def test_statistics_move_once_a_step_whatever_is_computed_again() -> None:
    torch.manual_seed(0)
    plain = WithLoss(Residual()).to(DEVICE)
    trained = Trained(reprise.compile(copy.deepcopy(plain), engine="fused"), images())
    trained.model.plan.set_budget(budgets(trained)[-1] + 4096 + 2 * SLACK)  # This leaves room for what the test keeps.
    trained.model.load_state_dict(plain.state_dict())
    for _ in range(3):
        found = trained.step()
    for _ in range(3):
        expected = Trained(plain, trained.x).step()
    assert trained.model.plan.recompute_ns > 0
    assert found["inner.norms.0.num_batches_tracked"] == 3
    for name in ("inner.norms.0.running_mean", "inner.norms.1.running_var"):
        torch.testing.assert_close(found[name], expected[name])


def test_gradients_accumulate_and_an_optimizer_steps() -> None:
    torch.manual_seed(0)
    plain = Perceptron().to(DEVICE)
    fused = reprise.compile(copy.deepcopy(plain), engine="fused")
    for model in (plain, fused):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            for seed in range(2):
                model(batch(256, seed=seed)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for one, other in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


A_STEP = """
import sys
if sys.argv[1] == "again":
    sys.modules["torch._inductor.compile_fx"] = None  # importing it fails
import torch
import reprise
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(100, 1)).to(sys.argv[2])
reprise.compile(model, engine="fused")(torch.ones(8, 4, 12, 12, device=sys.argv[2]).cumsum(0)).square().mean().backward()
print([parameter.grad.double().sum().item() for parameter in model.parameters()])
"""


def test_a_later_process_reads_the_step_and_needs_no_compiler(own_cache: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = [subprocess.run([sys.executable, "-c", A_STEP, which, str(DEVICE)], env=environment, check=True, text=True,
                            stdout=subprocess.PIPE).stdout for which in ("first", "again")]
    assert found[0] == found[1] and len(list((own_cache / "steps").iterdir())) == 1


def without_lowering(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("lowered again")

    patch.setattr(inductor, "lower_step", refuse)


def test_other_settings_and_other_steps_have_other_files(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = perceptron().step()
    with torch._inductor.config.patch(epilogue_fusion=False):
        perceptron().step()
    Trained(reprise.compile(WithLoss(Dropouts()).to(DEVICE), engine="fused"), batch(256)).step()
    assert len(list((own_cache / "steps").iterdir())) == 3
    without_lowering(monkeypatch)
    for keep in (True, False):
        monkeypatch.setenv("REPRISE_KEEP_TRACES", str(int(keep)))
        assert same(perceptron().step(), expected)


@pytest.mark.parametrize("broken", ["text", "contents", "kernels"])
def test_a_broken_file_is_made_anew(broken: str, own_cache: Path, caplog: pytest.LogCaptureFixture,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_KEEP_TRACES", "0")  # Otherwise what was lowered is not read.
    expected = perceptron().step()
    (kept,) = (own_cache / "steps").iterdir()
    if broken == "text":
        kept.write_bytes(kept.read_bytes()[:100])
    elif broken == "contents":
        kept.write_bytes(pickle.dumps(["no step"]))
    else:
        for file in (own_cache / "kernels").iterdir():
            file.unlink()
    assert same(perceptron().step(), expected)
    assert "it will be made anew" in caplog.text
    assert saved_steps.read(f"steps/{kept.name}") is not None


@pytest.mark.skipif(not DRIVER.exists(), reason="the build has no tests: configure it with -DREPRISE_TESTS=ON")
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_cpp_trains_an_exported_step_to_the_same_bits(share: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = WithLoss(nn.Sequential(Residual(), nn.Dropout(0.2), Residual())).to(DEVICE)
    batches = [images() * (i + 1) for i in range(3)]
    reprise.export(plain, lambda model, x: model(x), (images(),), tmp_path / "it.program.json", engine="fused")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it.kernels", "it.parameters.pt", "it.program.json"]
    torch.save({f"{i}.0": x for i, x in enumerate(batches)}, tmp_path / "batches.pt")
    subprocess.run([DRIVER, "it.program.json", "batches.pt", "0.05", "3", "trained.pt", str(share)], cwd=tmp_path, check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1", "REPRISE_CACHE_DIR": str(tmp_path / "empty")})
    trained = torch.load(tmp_path / "trained.pt", weights_only=True)

    model = reprise.compile(plain, engine="fused")
    torch.manual_seed(7)
    for i, x in enumerate(batches):
        loss = model(x)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.05)
        model.zero_grad()
        assert torch.equal(trained[f"loss {i}"], loss)
    assert all(torch.equal(trained[name], tensor) for name, tensor in model.state_dict().items())


def test_export_of_an_unknown_engine_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="engine='quick': choose 'eager' or 'fused'"):
        reprise.export(Perceptron(), lambda model, x: model(x).mean(), (batch(),), tmp_path / "it.program.json", engine="quick")
    assert not list(tmp_path.iterdir())


def test_preflight_and_curve_ask_about_the_engine() -> None:
    trained = perceptron()
    trained.step()
    peak = trained.model.plan.peak_bytes
    plain = reprise.restore(trained.model)
    eager = reprise.preflight(plain, trained.x, "1GiB", largest=False)
    fused = reprise.preflight(plain, trained.x, "1GiB", engine="fused")
    assert fused.counts.estimated == 0
    assert fused.planned.peak_bytes < eager.planned.peak_bytes  # fewer results lie in memory at all
    assert fused.plain.peak_bytes == eager.plain.peak_bytes
    assert fused.largest_planned is None
    points = reprise.curve(plain, trained.x, planning_seconds=1, engine="fused").points
    assert max(point.peak_bytes for point in points) == pytest.approx(fused.planned.peak_bytes, abs=8192)
    if DEVICE.type == "cpu":  # CUDA's libraries count too
        assert fused.planned.peak_bytes == pytest.approx(peak, abs=8192)  # the caller's part is a guess


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_preflight_generates_no_kernels_for_a_device_that_is_not_here() -> None:
    with pytest.raises(ValueError, match="there is no cuda here; use engine='eager'"):
        reprise.preflight(Perceptron(), batch(), "1GiB", device="cuda", profile="roofline", engine="fused")


def test_the_backend_of_torch_compile_takes_the_engine() -> None:
    torch.manual_seed(0)
    model = Perceptron().to(DEVICE)
    expected = Trained(WithLoss(copy.deepcopy(model)), batch(256)).step()
    compiled = torch.compile(model, backend="reprise", fullgraph=True, options={"engine": "fused"})
    compiled(batch(256)).square().mean().backward()
    torch.testing.assert_close(model.layers[0].weight.grad, expected["inner.layers.0.weight"])


def test_verify_compares_kernels_with_themselves_and_with_fp64() -> None:
    torch.manual_seed(0)
    model = WithLoss(Perceptron()).to(DEVICE)
    plain = reprise.verify(model, batch(256), engine="fused", repeats=1)
    found = reprise.verify(model, batch(256), plain.planned_peak_bytes - 4096, engine="fused", repeats=1)
    assert found.ok and found.engine == "fused" and found.planned_peak_bytes < plain.planned_peak_bytes
    assert found.errors.keys() == {f"gradient of {name}" for name, _ in model.named_parameters()}
    assert 0 < max(planned for _, planned in found.errors.values()) < 1e-4
    assert "error to fp64" in str(found) and "of planned and unplanned kernels" in str(found)
    found.errors["gradient of inner.layers.0.weight"] = (1e-7, 1e-2)
    assert not found.ok and "TOO LARGE in 1: gradient of inner.layers.0.weight" in str(found)


def test_verify_does_not_compare_random_steps_with_fp64() -> None:
    found = reprise.verify(WithLoss(Dropouts()).to(DEVICE), batch(256), engine="fused", repeats=1)
    assert not found.errors
    assert "not compared: the step draws random numbers" in str(found)


class TestPartitions:
    """Which of two sessions runs, with sessions that are only pretended."""

    @dataclass
    class Session:
        time_ns: int
        smallest: int
        recompute_ns: int = 10
        plan_is_given: bool = False
        name: str = "model"
        calls: int = 0
        outside_bytes: int = 0
        peak_bytes: int = 1000
        form: Form = FIRST_FORM
        budget: Callable[[], int | None] = lambda: None

        @property
        def runtime(self) -> Any:
            return self

        @property
        def plan(self) -> Any:
            return self

        def measure(self) -> None:
            pass

        def plan_ahead(self, _: int) -> None:
            self.refuse()

        def refuse(self) -> None:
            budget = self.budget()
            if budget is not None and budget < self.smallest:
                raise reprise.InfeasibleBudget("no", budget, self.smallest)

        def forward(self, args: list[Any]) -> list[Any]:
            self.refuse()
            self.calls += 1
            args.clear()
            return [self]

        def owns(self, handle: Any) -> bool:
            return handle is self

        def backward(self, args: list[Any]) -> list[Any]:
            assert args[0] is self
            return []

    def step(self, near: Session, far: Session, budget: int | None) -> tuple[FusedStep, Settings]:
        settings = Settings(budget_bytes=budget, engine="fused")
        near.budget = far.budget = lambda: settings.options.budget_bytes
        sessions: Any = {Form("near"): near, Form("far"): far}
        return FusedStep(sessions.__getitem__, settings, [8]), settings

    def ran(self, step: FusedStep, steps: int) -> None:
        for _ in range(steps):
            assert step.backward([step.forward([1])[0], torch.ones(2)]) == []

    @pytest.mark.parametrize("far_ns, far_calls", [(90, 3), (110, 0)])
    def test_the_faster_one_runs_after_the_first_steps(self, far_ns: int, far_calls: int) -> None:
        near, far = self.Session(100, smallest=5), self.Session(far_ns, smallest=5)
        step, _ = self.step(near, far, budget=10)
        self.ran(step, STEPS_BEFORE + 3)
        assert (near.calls, far.calls) == (STEPS_BEFORE + 3 - far_calls, far_calls)

    def test_without_recomputation_nothing_is_compared(self) -> None:
        near, far = self.Session(100, smallest=5, recompute_ns=0), self.Session(90, smallest=5)
        step, settings = self.step(near, far, budget=10)
        self.ran(step, 5)
        settings.options.budget_bytes, near.recompute_ns = None, 10
        self.ran(step, 5)
        assert far.calls == 0

    def test_where_one_does_not_fit_the_other_runs(self) -> None:
        near, far = self.Session(100, smallest=5), self.Session(200, smallest=3)
        step, settings = self.step(near, far, budget=4)
        self.ran(step, 4)
        assert (near.calls, far.calls) == (0, 4)
        settings.options.budget_bytes = 10
        self.ran(step, 4)
        assert (near.calls, far.calls) == (4, 4)
        settings.options.budget_bytes = 2
        with pytest.raises(reprise.InfeasibleBudget) as refused:
            step.forward([1])
        assert refused.value.smallest_budget_bytes == 3

    def test_what_no_backward_has_shown_is_not_left_out(self) -> None:
        near, far = self.Session(100, smallest=5, recompute_ns=0), self.Session(90, smallest=5)
        near.peak_bytes = 8  # no more than the only gradient
        step, _ = self.step(near, far, budget=10)
        for _ in range(STEPS_BEFORE + 2):
            step.forward([1])
        assert near.calls == STEPS_BEFORE + 2

    def test_what_the_user_fixes_stays(self) -> None:
        near, far = self.Session(100, smallest=5), self.Session(90, smallest=3)
        step, settings = self.step(near, far, budget=10)
        settings.partition = "near"
        self.ran(step, 5)
        assert far.calls == 0
        settings.options.budget_bytes = 4
        with pytest.raises(reprise.InfeasibleBudget):
            step.forward([1])
        settings.partition, near.plan_is_given, settings.options.budget_bytes = None, True, 10
        self.ran(step, 5)
        assert far.calls == 0


class WithLogits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1024))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layers(x)
        return functional.log_softmax(logits, dim=-1)[:, 0].mean(), logits


def test_gradients_that_are_never_there_take_no_memory() -> None:
    torch.manual_seed(0)
    model, x = reprise.compile(WithLogits().to(DEVICE), engine="fused"), batch(256)
    size = 256 * 1024 * 4

    def step(use_logits: bool = False) -> dict[str, Tensor]:
        gc.collect()
        model.zero_grad()
        loss, logits = model(x)
        (loss + logits.mean() if use_logits else loss).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = step()
    before = model.plan.at_work.step_peak_bytes
    for _ in range(STEPS_BEFORE + 1):
        found = step()
    assert model.plan.at_work.step_peak_bytes == before - size
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])
    with pytest.raises(reprise.RepriseError, match="a gradient for output 1 of WithLogits, which no step had before"):
        step(use_logits=True)
    plain = WithLogits().to(DEVICE)
    plain.load_state_dict(model.state_dict())
    loss, logits = plain(x)
    (loss + logits.mean()).backward()
    found = step(use_logits=True)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_the_partition_is_shown_and_can_be_fixed() -> None:
    model = reprise.compile(WithLoss(Perceptron()).to(DEVICE), engine="fused")
    Trained(model, batch(256)).step()
    assert model.plan.partition == "near"
    with pytest.raises(ValueError, match="partition='nearer': choose 'near', 'far' or None"):
        model.plan.set_partition("nearer")
    eager = reprise.compile(WithLoss(Perceptron()).to(DEVICE))
    with pytest.raises(ValueError, match='only engine="fused" has partitions'):
        eager.plan.set_partition("far")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine='quick': choose 'eager' or 'fused'"):
        reprise.compile(Perceptron(), engine="quick")


def lowered(network: nn.Module, x: Tensor) -> inductor.LoweredStep:
    """What Inductor made of the step."""
    found: list[inductor.LoweredStep] = []
    lower = inductor.lower_step

    def keep(*args: Any) -> inductor.LoweredStep:
        found.append(lower(*args))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductor, "lower_step", keep)
        torch.manual_seed(0)
        Trained(reprise.compile(WithLoss(network).to(DEVICE), engine="fused"), x).step()
    return found[0]


def test_this_torch_has_what_is_taken_from_inductor() -> None:
    assert internals.missing() == []


@pytest.mark.parametrize("name", ["codegen.wrapper.ReinterpretLine", "config.inplace_buffers"])
def test_a_torch_without_it_is_refused_by_name(name: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "NAMES" if name.startswith("codegen") else "SETTINGS"
    module, _, last = f"torch._inductor.{name}".rpartition(".")
    changed: Any = {"NAMES": {module: (f"{last}s",)}, "SETTINGS": {f"{last}s": False}}
    monkeypatch.setattr(internals, kind, changed[kind])
    with pytest.raises(reprise.Unsupported, match=rf" does not have {module}\.{last}s, from which"):
        perceptron().step()


def test_buffers_are_written_by_one_call_for_each_type() -> None:
    model = reprise.compile(WithLoss(Residual()).to(DEVICE), engine="fused")
    Trained(model, images()).step()
    names = [model.plan.graph.op_name(op) for op in range(model.plan.graph.num_ops)]
    assert len([name for name in names if name.startswith("buffers_")]) == 2  # statistics, and how many batches there were


def test_what_inductor_generates_is_read_completely(own_cache: Path) -> None:
    """A step with a launch, calls with and without results of their own, and parts of one buffer."""
    step = lowered(Attention(), batch(8 * 32).view(8, 32, 16))
    called = [item.operator.overloadpacket for item in step.forward.items if isinstance(item, Extern)]
    assert torch.ops.aten.addmm in called
    assert any("attention" in str(packet) for packet in called)
    made = {item.part.memory for item in step.backward.items if isinstance(item, Allocation)}
    launches = [item for item in step.backward.items if isinstance(item, Launch)]
    assert launches and all(launch.kernel in step.backward.kernels for launch in launches)
    operands = [argument for launch in launches for argument in launch.arguments if isinstance(argument, tuple)]
    written = {part.memory for part, writes in operands if writes}
    assert written <= made
    assert all(part is None or part.memory in made | set(step.backward.inputs) for part in step.backward.outputs)
    assert {launch.scope for launch in launches} <= {"", "inner", "inner.packed", "inner.out"}
