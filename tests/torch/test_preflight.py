"""Tests reprise.preflight and reprise.curve: what they predict before training is what training then shows."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from steps import CPU
from torch.utils.flop_counter import FlopCounterMode
from training import Mlp, batch

import reprise
from reprise import _core, planning
from reprise.__main__ import main
from reprise.api import preflight as preflighting
from reprise.forecast import known_calls
from reprise.forecast.batches import BatchFamily
from reprise.forecast.known_calls import KnownCalls
from reprise.forecast.known_layouts import AnyBatch
from reprise.forecast.question import Question, last_inside
from reprise.native import _torch
from reprise.trace.step_capture import TracedStep, capture_step

CHAIN = Path(__file__).parents[1] / "cli/data/chain.graph.json"


class Conv(torch.nn.Module):
    """A network with operators that have workspaces, and with the buffers of batch norm."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Conv2d(3, 8, 3)]
        for _ in range(3):
            layers += [torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)]
        self.body = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((1, 2, 3))


def factory(size: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """The factory that the tests of the command line name."""
    return Mlp(), batch(size)


def images(size: int) -> torch.Tensor:
    return torch.randn(size, 3, 20, 20, generator=torch.Generator().manual_seed(size))


def question(model: torch.nn.Module, profile: str, seconds: float = 1) -> Question:
    return preflighting.question(model, images(8), 1 << 40, device=None, optimizer=None, reserve=0, planner="auto",
                                 planning_seconds=seconds, profile=profile)


def real_peak(model: torch.nn.Module, x: torch.Tensor) -> int:
    """The peak of one plain step, as the allocator counts it."""
    model.zero_grad(set_to_none=True)
    there = sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers(), x])
    _torch.reset_peak(CPU)
    entry = _torch.allocated_bytes(CPU)
    output = model(x)
    output.sum().backward()
    return there + _torch.peak_bytes(CPU) - entry


@pytest.fixture(scope="module")
def known_conv() -> Conv:
    """A network that was trained at two small batch sizes, so that its operators are known. At even smaller sizes, workspaces
    do not grow linearly: on some processors, a part of them does not grow, and is the larger part there."""
    torch.manual_seed(0)
    model = Conv().train()
    for size in (12, 24):
        reprise.compile(model)(images(size)).sum().backward()
    return reprise.restore(model)


def test_the_largest_plain_batch_is_the_true_one(known_conv: Conv) -> None:
    _torch.install_meter()
    budget = 3 * real_peak(known_conv, images(16))
    found = reprise.preflight(known_conv, images(16), budget)
    assert found.counts.estimated == 0 and found.counts.scaled > 0
    truth = last_inside(lambda n: real_peak(known_conv, images(n)), budget, 48)
    assert found.largest_plain.batch == pytest.approx(truth, rel=0.03)
    assert found.plain.fits and found.fits and "fits as it is" in str(found)


def test_the_largest_planned_batch_trains(known_conv: Conv) -> None:
    budget = 2 * real_peak(known_conv, images(16))
    found = reprise.preflight(known_conv, images(16), budget, planning_seconds=2)
    largest = found.largest_planned
    assert largest.batch > found.largest_plain.batch
    assert largest.peak_bytes <= budget
    size = int(largest.batch * 0.97)
    model = reprise.compile(Conv().train(), budget)
    model(images(size)).sum().backward()
    assert model.plan.measured_peak_bytes <= budget
    too_large = reprise.compile(Conv().train(), budget)
    with pytest.raises(reprise.InfeasibleBudget):
        too_large(images(int(largest.batch * 1.04) + 1))


class OwnLoss(Mlp):
    """A model that returns its loss, and outputs that are not used for training."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = super().forward(x)
        return {"loss": logits.sum(), "logits": logits}


def test_plain_training_of_a_model_that_returns_its_loss() -> None:
    _torch.install_meter()
    model, x = OwnLoss(outputs=400), batch(64)
    there = sum(t.untyped_storage().nbytes() for t in [*model.parameters(), x])
    _torch.reset_peak(CPU)
    entry = _torch.allocated_bytes(CPU)
    output = model(x)
    output["loss"].backward()
    peak = there + _torch.peak_bytes(CPU) - entry
    found = reprise.preflight(model, x, "1GiB", profile="roofline", largest=False)
    assert found.plain.peak_bytes == pytest.approx(peak, abs=8192)
    # The plan has zeros for the gradient of the logits. The gradient of a plain sum has another layout, so one tensor cannot
    # serve as both.
    assert found.planned.peak_bytes > peak + 64 * 400 * 4


class Rectified(torch.nn.Module):
    """A network whose backward pass begins at its largest layer, where a plan writes one gradient over another."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.relu = torch.nn.Linear(16, 1024), torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.wide(x)).mean(1)


def test_plain_training_writes_no_gradient_over_another() -> None:
    _torch.install_meter()
    model, x = Rectified(), batch(64, 16)
    found = reprise.preflight(model, x, "1GiB", profile="roofline", largest=False)
    assert found.plain.peak_bytes == pytest.approx(real_peak(model, x), abs=8192)
    assert found.plain.peak_bytes > found.planned.peak_bytes + 64 * 1024 * 4 - 8192


def test_nothing_is_touched() -> None:
    torch.manual_seed(0)
    model, x = Conv().train(), images(16)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    _torch.install_meter()
    _torch.reset_peak(CPU)
    entry = _torch.allocated_bytes(CPU)
    found = reprise.preflight(model, x, "1MiB", profile="roofline", planning_seconds=1)
    assert found.plain.peak_bytes > 1 << 20
    assert _torch.peak_bytes(CPU) - entry < 32768  # These are states of generators; a step would take megabytes.
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled() and not hasattr(model, "plan")


def test_the_prediction_for_a_batch_is_what_compile_plans(known_conv: Conv) -> None:
    known_conv.zero_grad(set_to_none=True)  # Gradients that a step adds to would lie beside it.
    model = reprise.compile(known_conv)
    output = model(images(8))
    first = model.plan.peak_bytes  # before anything is known of the caller
    del output
    reprise.restore(known_conv)
    found = reprise.preflight(known_conv, images(8), "1GiB", largest=False)
    assert found.counts.measured > 0 and found.counts.scaled == found.counts.estimated == 0
    assert found.largest_plain is None
    assert found.planned.peak_bytes == found.plain.peak_bytes == first


class WithOwnTensors(torch.nn.Module):
    """A network whose step holds tensors of its own: a constant, and the numbers of dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4),
                                          torch.nn.Dropout(0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_tensors_of_the_step_itself_are_counted() -> None:
    model = reprise.compile(WithOwnTensors())
    output = model(batch())
    first = model.plan.peak_bytes  # before anything is known of the caller
    assert reprise.preflight(WithOwnTensors(), batch(), "1GiB", largest=False).planned.peak_bytes == first
    del output


def test_an_optimizer_and_a_reserve_take_room() -> None:
    model = Mlp()
    bare = reprise.preflight(model, batch(), "1MiB", profile="roofline", largest=False)
    adam = torch.optim.Adam(model.parameters())
    more = reprise.preflight(model, batch(), "1MiB", profile="roofline", largest=False, optimizer=adam,
                             reserve=1000)
    state = sum(2 * p.numel() * p.element_size() + 4 for p in model.parameters())
    assert more.plain.peak_bytes - bare.plain.peak_bytes == state + 1000


def rewrite_costs(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the contents of the file with the costs of calls."""
    (path,) = folder.glob("costs-*.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_libraries_keep_takes_room(own_cache: Path) -> None:
    """On CUDA, cuBLAS keeps memory for every thread: the thread of a plan, or in plain training those of the caller and of
    autograd."""
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)), torch.rand(4, 8)
    alone = reprise.preflight(model, x, budget="1GiB", profile="measure", largest=False)
    rewrite_costs(own_cache, lambda content: content.update(kept_bytes=1_000_000))
    beside = reprise.preflight(model, x, budget="1GiB", largest=False)
    assert beside.plain.peak_bytes - alone.plain.peak_bytes == 2_000_000
    assert beside.planned.peak_bytes - alone.planned.peak_bytes == 1_000_000
    without = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3), torch.nn.Tanh())
    assert reprise.preflight(without, x[:, None], budget="1GiB", largest=False).plain.peak_bytes < 1_000_000


def test_what_does_not_fit_says_what_would() -> None:
    found = reprise.preflight(Mlp(width=64), batch(512, 64), 400_000, profile="roofline")
    assert not found.plain.fits and not found.planned.fits and not found.fits
    assert found.planned.time_ns is None
    assert 0 < found.largest_planned.batch < 512
    assert f"({found.planned.peak_bytes} bytes)" in str(found)
    assert f"lower the batch to {found.largest_planned.batch}" in str(found)
    assert reprise.preflight(Mlp(width=64), batch(512, 64), 1000, profile="roofline").largest_planned is None


def test_layouts_at_other_batch_sizes_follow_from_two() -> None:
    def key(n: int) -> str:
        return f"aten.attend(torch.float32({n}, 8, 64)(512, 64, 1)0/{n * 2048}, 0.5)"

    def layout(n: int) -> tuple[str, list[int], list[int], int, int, str]:
        return "float32", [n, 8, 64], [64, n * 64, 1], 0, n * 2048, "cuda"

    known = AnyBatch({key(n): [layout(n), None] for n in (8, 16)})
    assert known.get(key(4)) == [layout(4), None] and known.get(key(24)) == [layout(24), None]
    assert known.get(key(8)) == [layout(8), None]
    assert known.get(key(4).replace("64", "32")) is None and known.get(key(4).replace("attend", "other")) is None
    assert AnyBatch({key(8): [layout(8)]}).get(key(4)) is None


def test_what_is_measured_at_the_largest_batch_counts(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    """Libraries may use other algorithms, with other workspaces, for other sizes."""
    grown: list[int] = []

    def measured(step: TracedStep, *args: Any) -> _core.Costs:
        costs = measure(step, *args)
        grown.append(0)
        program = step.captured.program
        calls = {program.signature(op) for op in range(program.num_ops) if program.is_call(op)}

        def grow(content: dict[str, Any]) -> None:
            for entry in content["calls"]:
                if len(grown) > 2 and entry["call"] in calls:
                    entry["workspace_bytes"] = 150_000

        rewrite_costs(own_cache, grow)
        return costs

    measure = TracedStep.measure
    monkeypatch.setattr(TracedStep, "measure", measured)
    found = reprise.preflight(Mlp(width=64), batch(64, 64), 400_000, profile="measure", planning_seconds=1)
    assert len(grown) > 2
    smooth = reprise.preflight(Mlp(width=64), batch(64, 64), 400_000, profile="roofline", planning_seconds=1)
    assert found.largest_plain.batch < 0.8 * smooth.largest_plain.batch


def test_a_call_of_a_captured_batch_is_known_by_its_own_text(known_conv: Conv) -> None:
    """It cannot always be derived from the calls at other sizes, because numbers in it may be rounded."""
    asked = question(known_conv, "known")
    for size in (8, 16, 33):
        asked.family.add(size)
    step = asked.family.captured[33]
    step.signatures = {op: f"{text} of 512" for op, text in step.signatures.items()}
    known = {text: (1, 1_000_000 + op) for op, text in step.signatures.items()}
    family = BatchFamily(asked.family.capture, "cpu", asked.family.known | known, asked.family.captured)
    _, costs, _, counts = family.at(33)
    assert counts.measured == len(step.signatures) and counts.scaled == counts.estimated == 0
    assert all(costs.workspace_bytes[op] >= 1_000_000 for op in step.signatures)


def test_the_time_at_a_batch_is_not_that_of_another(known_conv: Conv) -> None:
    asked = question(known_conv, "known")
    asked.answer(largest=False)
    asked.family.add(16)
    asked.refresh()
    before = asked.plain(200).time_ns
    assert before > 1.7 * asked.plain(100).time_ns  # Both come from the same measurements, with the same noise.
    asked.family.add(200)  # Now the step is known, but not what it costs.
    assert asked.plain(200).time_ns == pytest.approx(before, rel=0.1)


class OtherAtOne(Mlp):
    """A model with an operator that batch 1 does not need, like the copies in attention's reshapes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.shape[0] == 1 else x * 2)


@pytest.mark.parametrize("size", [1, 8])
def test_batch_one_may_have_other_operators(size: int) -> None:
    model = OtherAtOne(width=64).train()
    roomy = reprise.preflight(model, batch(size, 64), 1 << 21, profile="roofline", planning_seconds=1)
    assert roomy.plain.batch == size and roomy.largest_plain.batch > 8
    least = reprise.preflight(model, batch(1, 64), 1 << 30, profile="roofline", planning_seconds=1, largest=False)
    tight = reprise.preflight(model, batch(size, 64), least.plain.peak_bytes, profile="roofline", planning_seconds=1)
    assert tight.largest_plain.batch == 1 and tight.largest_plain.peak_bytes == least.plain.peak_bytes


def test_plain_training_runs_whole_what_plans_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA, a plan runs the backward pass of a large convolution as two calls."""
    def convolutions(eager: bool) -> tuple[int, int]:
        asked = question(Conv().train(), "roofline")
        asked.answer(largest=False)
        graph = asked.family.at(8, eager=eager)[0]
        names = [graph.op_name(op) for op in range(graph.num_ops)]
        return sum(name.startswith("convolution_backward") for name in names), asked.plain(8).peak_bytes

    assert (whole := convolutions(eager=True)) == convolutions(eager=False)
    monkeypatch.setenv("REPRISE_SPLIT_CONVOLUTIONS", "1")
    assert convolutions(eager=True) == whole
    assert convolutions(eager=False)[0] > whole[0]


def test_a_plan_drops_the_input_between_the_two_calls_of_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan computes the input again from the images, which are small."""
    def smallest() -> int:
        layers = [layer for width in (3, 16) for layer in (torch.nn.Conv2d(width, 16, 3, padding=1), torch.nn.Tanh())]
        model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1))
        return planning.smallest_budget_bytes(*question(model, "roofline", 5).step()[:2], "auto", 5.0)

    whole = smallest()
    monkeypatch.setenv("REPRISE_SPLIT_CONVOLUTIONS", "1")
    assert smallest() == pytest.approx(whole - 8 * 16 * 20 * 20 * 4, abs=8192)


class OtherAbove(Mlp):
    """A model with other operators at large batch sizes, like batch norm, which has another kernel for tensors of more than
    2^31 numbers. In later layers, this happens at larger sizes."""

    above = 100

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for above in (self.above, 1.04 * self.above):
            x = x.tanh() * 2 if x.shape[0] > above else x
        return super().forward(x)


@pytest.mark.parametrize("above", [100, 660, 720, 1200])
def test_large_batches_may_have_other_operators(above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a largest batch that is at the threshold. In that case it is found by captures only, and less exactly."""
    monkeypatch.setattr(OtherAbove, "above", above)
    model = OtherAbove(width=64).train()

    def peak(size: int) -> int:
        return reprise.preflight(model, batch(size, 64), 1 << 30, profile="roofline", largest=False).plain.peak_bytes

    largest = reprise.preflight(model, batch(8, 64), 2_000_000, profile="roofline", planning_seconds=1).largest_plain
    assert largest.peak_bytes == peak(largest.batch) <= 2_000_000
    assert peak(largest.batch + 1 + largest.batch // 32) > 2_000_000


def test_another_device_is_asked_about_by_its_name() -> None:
    found = reprise.preflight(Mlp(), batch(), "1MiB", device="cuda", profile="roofline", largest=False)
    assert found.device == "cuda"
    if not torch.cuda.is_available():
        assert "there is no CUDA here" in str(found)


@pytest.mark.parametrize(("options", "message"), [
    ({"profile": "guess"}, "choose 'known', 'measure', 'roofline'"), ({"planner": "best"}, "unknown planner"),
    ({"batch_dim": 5}, "no tensor has a dimension 5"), ({"budget": 0.5}, "give bytes")])
def test_bad_questions(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reprise.preflight(Mlp(), batch(), **{"budget": "1MiB", **options})


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    asked = ["preflight", "test_preflight:factory", "--batch", "32", "--profile", "roofline", "--no-largest"]
    assert main([*asked, "--budget", "1MiB"]) == 0
    assert "It fits as it is" in capsys.readouterr().out
    assert main([*asked, "--budget", "4KiB", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["plain"]["batch"] == 32 and answer["planned"]["fits"] is False
    assert main([*asked, "--budget", "much"]) == 3
    assert "budget" in capsys.readouterr().err
    for wrong in ("test_preflight", "no_such_module:f", "test_preflight:no_such_function"):
        with pytest.raises(SystemExit) as error:
            main(["preflight", wrong, "--batch", "1", "--budget", "1MiB"])
        assert error.value.code == 2


def test_a_call_is_known_again_at_another_batch_size() -> None:
    at = "aten::mm.;Float[{} 64 ] strides [64 1 ],;Float[64 {} ] strides [{} 1 ],;8"
    known = {call: (i, 10 * i) for i, call in enumerate([
        at.format(24, 48, 48), at.format(32, 64, 64), at.format(24, 49, 49), at.format(25, 50, 51), at.format(0, 0, 0),
        at.format(40, 80, 80)[:-1] + "9", "aten::mm.;Float[24 64 ]"])}
    assert KnownCalls(known).at_any_batch(8, at.format(8, 16, 16), 16, at.format(16, 32, 32)) == {24: (0, 0), 32: (1, 10)}
    assert KnownCalls(known).at_any_batch(16, at.format(16, 32, 32), 8, at.format(8, 16, 16)) == {24: (0, 0), 32: (1, 10)}
    assert KnownCalls(known).at_any_batch(8, at.format(8, 16, 16), 16, "aten::mm.;Float[16 64 ]") == {}
    for other in ("f;0.05", "f;0.5"):
        assert KnownCalls({"f;0.5": (1, 1)}).at_any_batch(8, "f;0.5", 16, other) == {}


def test_known_calls_are_read_once_however_many_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache may have tens of thousands of calls, and a step may have thousands of different ones."""
    read: list[str] = []
    take_apart = known_calls.taken_apart
    monkeypatch.setattr(known_calls, "taken_apart", lambda call: (read.append(call), take_apart(call))[1])
    at = "aten::relu.;Float[{} {} ]"
    known = KnownCalls({at.format(size, width): (size, width) for size in (4, 8, 12) for width in range(100, 200)})
    for width in range(100, 200):
        found = known.at_any_batch(4, at.format(4, width), 8, at.format(8, width))
        assert found == {4: (4, width), 8: (8, width), 12: (12, width)}
    assert len(read) == 300 + 2 * 100


@pytest.mark.parametrize("limit", [0, 9, 10, 11, 5000, 123_456])
def test_last_inside_is_the_last(limit: int) -> None:
    def need(n: int) -> int:
        return 9 + n + (n * n) // 1000

    found = last_inside(need, limit, 16)
    assert found == 0 or need(found) <= limit
    assert need(found + max(1, found // 128)) > limit


def test_a_curve_of_a_model_and_of_a_graph(known_conv: Conv) -> None:
    found = reprise.curve(known_conv, images(8), planning_seconds=5)
    assert [p.peak_bytes for p in found] == sorted(p.peak_bytes for p in found)
    assert [p.time_ns for p in found] == sorted((p.time_ns for p in found), reverse=True)
    assert len(found) > 2 and found.points[-1].time_ns == found.plain.time_ns
    assert all(p.lower_bound_ns is None or p.lower_bound_ns <= found.points[0].time_ns for p in found)
    assert found.at(found.points[1].peak_bytes) == found.points[1]
    assert found.at(found.points[0].peak_bytes - 1) is None
    assert found.at("1GiB") == found.points[-1]
    table = str(found)
    assert _core.format_bytes(found.points[0].peak_bytes) in table and "at least" in table
    assert found._repr_html_().startswith("<svg") and found._repr_html_().count("<path") >= 3
    model = reprise.compile(known_conv)
    model(images(8)).sum().backward()
    graph, costs = model.plan.graph, model.plan.costs
    reprise.restore(known_conv)
    assert reprise.curve(graph, costs, planner="none").points[0].time_ns == found.plain.time_ns


def test_plot_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reprise.curve(*_core.parse_graph(CHAIN.read_text()), planner="chen")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        found.plot()


def test_plot_with_matplotlib() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    found = reprise.curve(*_core.parse_graph(CHAIN.read_text()))
    axes = found.plot()
    assert axes.get_legend_handles_labels()[1] == ["best found", "proven bound", "plain"]


def test_estimates_count_as_torch_counts() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.ConvTranspose2d(32, 16, 2, stride=2),
                                torch.nn.Flatten(), torch.nn.Linear(16 * 12 * 12, 64))
    x = torch.rand(64, 16, 8, 8)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    program = capture_step(model, (x,), {}, "Net").captured.program
    calls = {op: program.signature(op) for op in range(program.num_ops) if program.is_call(op)}
    times = _torch.roofline_ns(program, "cpu")
    counted = counter.get_flop_counts()["Global"]
    assert {operator.__name__ for operator in counted} == {"convolution", "convolution_backward", "addmm", "mm"}
    for operator, flops in counted.items():
        estimated = sum(times[op] for op, call in calls.items() if call.startswith(f"aten::{operator.__name__}."))
        assert estimated == pytest.approx(flops / 100, rel=1e-3)  # The estimate assumes 100 GFLOP/s.


def test_attention_with_shared_keys_is_estimated_as_with_keys_of_their_own() -> None:
    """The estimate is for a device that this machine need not have."""

    def times(heads: int) -> list[int]:
        device = torch.device("cuda")
        builder = _torch.ProgramBuilder("attention", device)

        def use(*sizes: int) -> _torch.Use:
            strides = torch.empty(sizes, device="meta").stride()
            return _torch.Use(builder.resident(0, device), _torch.Geometry(torch.float32, list(sizes), list(strides), 0))

        q, kv, numbers = use(2, 8, 512, 64), use(2, heads, 512, 64), use(2, 8, 512)
        backward = (q, q, kv, kv, q, numbers, None, None, 512, 512, 0.0, True, None, None)
        for name, arguments in (("", (q, kv, kv, 0.0, True)), ("_backward", backward)):
            called = (f"aten::_scaled_dot_product_flash_attention{name}", list(arguments), {})
            builder.call("attention", "", called, [])
        builder.end_forward([], [])
        program, _ = builder.finish([])
        return [time for time in _torch.roofline_ns(program, "cuda") if time > 0]

    least = 3_000  # the least time of any call
    assert times(2) == times(8) > [least, least]
