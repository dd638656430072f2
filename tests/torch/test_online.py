"""The online mode: bits and budget of code that runs as it is."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from online_loops import (
    LOOPS,
    TELLS_OF_ACCESS,
    Breaks,
    Loop,
    ResNet,
    allocated,
    bits_of,
    image_loss,
    inside,
    peak_of,
    random_program,
    train_inside_budgets,
)
from torch import Tensor, library, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from training import DEVICE

import reprise
from reprise.native import _torch

FIRST, PROGRAMS = (int(os.environ.get(f"REPRISE_ONLINE_{name}", usual)) for name, usual in (("FIRST", "0"), ("PROGRAMS", "600")))

pytestmark = [pytest.mark.usefixtures("one_thread", "on_device"),
              pytest.mark.skipif(not _torch.online_is_available(DEVICE), reason="this build cannot do it on the device")]
_torch.install_meter()  # It counts from here on.
on_host = pytest.mark.skipif(DEVICE.type != "cpu", reason="about memory that the host reads and writes")
tells_of_access = pytest.mark.skipif(not TELLS_OF_ACCESS, reason="this torch does not tell when an address is taken")


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_loops_have_the_bits_of_plain_training_inside_the_budget(loop: Loop) -> None:
    def look(mode: reprise.online) -> None:
        assert mode.summary.evictions > 0

    train_inside_budgets(loop, look)


def test_random_programs_have_eagers_bits() -> None:
    evictions = repeated = refused = 0
    for seed in range(FIRST, FIRST + PROGRAMS):
        before = _torch.allocated_bytes(DEVICE)
        _torch.reset_peak(DEVICE)
        expected = random_program(seed)
        plain = _torch.peak_bytes(DEVICE) - before
        budget = before + int((0.9, 0.8, 0.7)[seed % 3] * plain)
        try:
            with reprise.online(budget, smallest=(1, 512)[seed % 2], most_recomputation=None,
                                planning_seconds=0) as mode:
                bits = random_program(seed)
                assert _torch.peak_bytes(DEVICE) <= budget
        except reprise.BudgetExceeded:
            refused += 1
            continue
        different = [name for name in expected if expected[name] != bits[name]]
        assert different == [], f"program {seed}"
        evictions += mode.summary.evictions
        repeated += mode.summary.repeated_calls
        assert _torch.allocated_bytes(DEVICE) <= before or allocated() <= before, f"program {seed}"
    assert evictions > 3 * PROGRAMS
    assert repeated > 3 * PROGRAMS
    assert refused < PROGRAMS // 4


ROWS = 64
RESULT = ROWS * ROWS * 4  # bytes


def chain(x: Tensor, length: int = 12) -> list[Tensor]:
    made = []
    for _ in range(length):
        x = torch.tanh(x * 1.1)
        made.append(x)
    return made


class Chain:
    """Twelve results, of which six fit into the budget, and what they have to be."""

    def __init__(self, results: int = 6) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(ROWS, ROWS)
        self.expected = [y.clone() for y in chain(self.x)]
        self.mode = reprise.online(allocated() + results * RESULT, smallest=1024)

    def check(self, made: list[Tensor]) -> None:
        assert [bits_of(y) for y in made] == [bits_of(y) for y in self.expected]


def test_all_that_the_program_holds_is_there_at_the_end() -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        assert mode.summary.evictions >= 6
        assert _torch.allocated_bytes(DEVICE) <= mode.budget_bytes
        mode.set_budget("1GiB")
    case.check(made)
    assert mode.summary.repeated_calls > 0


def test_more_than_the_budget_is_restored_at_the_end_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    case = Chain()
    with case.mode:
        made = chain(case.x)
    case.check(made)
    assert "restored above the budget" in caplog.text


@on_host
@tells_of_access
@pytest.mark.parametrize("access", [
    lambda y: y.numpy().copy(),
    lambda y: torch.from_dlpack(torch.utils.dlpack.to_dlpack(y)).clone().numpy(),
    lambda y: torch.frombuffer(bytearray(bytes(memoryview(y.numpy()).cast("B"))), dtype=torch.float32).numpy(),
    lambda y: torch.tensor(y.clone().tolist()).numpy(),
], ids=["numpy", "dlpack", "buffer", "tolist of a clone"])
def test_by_hand_a_result_is_what_it_has_to_be(access: Callable[[Tensor], object]) -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        mode.set_budget(mode.budget_bytes + 9 * RESULT)
        for y, expected in zip(made, case.expected, strict=True):
            assert (torch.as_tensor(access(y)).reshape(ROWS, ROWS) == expected).all()


@on_host
@tells_of_access
def test_numpy_sees_the_tensor_for_as_long_as_it_lives() -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        array = made[0].numpy()
        for _ in range(3):
            chain(case.x)
        array[0, 0] = 5.0
        assert made[0][0, 0].item() == 5.0
        assert (array[1:] == case.expected[0].numpy()[1:]).all()
        mode.set_budget("1GiB")


@on_host
@tells_of_access
@pytest.mark.parametrize("read", [lambda y: torch.tensor(y.tolist()), copy.deepcopy], ids=["tolist", "deepcopy"])
def test_what_reads_memory_around_everybody_is_right_or_raises(read: Callable[[Tensor], Tensor]) -> None:
    """These do not ask for what was taken away. They must not make up numbers."""
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        mode.set_budget(mode.budget_bytes + 2 * RESULT)
        outcomes = set()
        for y, expected in zip(made, case.expected, strict=True):
            try:
                assert read(y).equal(expected)
                outcomes.add("right")
            except RuntimeError as error:
                assert "unallocated storage" in str(error) or "invalid python storage" in str(error)
                outcomes.add("raises")
        assert outcomes == {"right", "raises"}
        mode.set_budget("1GiB")
        for y, expected in zip(made, case.expected, strict=True):
            assert read(y.clone()).equal(expected)
            file = io.BytesIO()
            torch.save(y.clone(), file)
            file.seek(0)
            assert torch.load(file).equal(expected)


@pytest.mark.skipif(TELLS_OF_ACCESS, reason="this torch tells when an address is taken")
def test_taking_an_address_is_an_error_where_nobody_tells_of_it() -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        mode.set_budget(mode.budget_bytes + 9 * RESULT)
        for y in made:
            with pytest.raises(RuntimeError, match=r"torch\.empty\(x\.shape, dtype=x\.dtype\)\.copy_\(x\)"):
                y.data_ptr()
            assert torch.empty(y.shape, dtype=y.dtype).copy_(y).data_ptr() != 0
    case.check(made)
    assert all(y.data_ptr() != 0 for y in made)


@on_host
@pytest.mark.parametrize("gather", [torch.distributed.all_gather_into_tensor,
                                    lambda y, x: torch.distributed.all_gather([y], x)], ids=["tensor", "list"])
def test_a_collective_may_write_over_a_result(gather: Callable[[Tensor, Tensor], object], tmp_path: Path) -> None:
    case = Chain(results=8)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        with case.mode as mode:
            y, reader, *_ = chain(case.x, 2)
            gather(y, case.x)
            made = chain(case.x)
            assert mode.summary.evictions > 0
            mode.set_budget("1GiB")
    finally:
        torch.distributed.destroy_process_group()
    case.check(made)
    assert (bits_of(y), bits_of(reader)) == (bits_of(case.x), bits_of(case.expected[1]))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="about streams")
def test_another_stream_may_write_over_a_result() -> None:
    case, side = Chain(results=8), torch.cuda.Stream()
    with case.mode as mode:
        y, reader, *_ = chain(case.x, 2)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        made = chain(case.x)
        assert mode.summary.evictions > 0
        mode.set_budget("1GiB")
    case.check(made)
    assert (bits_of(y), bits_of(reader)) == (bits_of(case.expected[0] + 1), bits_of(case.expected[1]))


def test_a_call_that_raises_leaves_everything_as_it_was() -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        for y in made:
            with pytest.raises(RuntimeError, match="size"):
                y @ torch.ones(3)
        for y in made[:2]:
            with pytest.raises(RuntimeError, match="size"):
                y.add_(torch.ones(3, 5))
        mode.set_budget("1GiB")
    case.check(made)


@on_host
def test_an_allocation_that_fails_leaves_everything_as_it_was() -> None:
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        for nth in range(1, 4):
            _torch.fail_allocation(nth)
            with pytest.raises(RuntimeError, match="made to fail"):
                made[3] + made[1] + made[0].exp() + 1
        mode.set_budget("1GiB")
    case.check(made)


def test_a_refusal_says_what_is_in_the_way() -> None:
    case = Chain(1)
    with case.mode, pytest.raises(reprise.BudgetExceeded, match=r"aten::cat asks for 48.00 KiB .* without a budget"):
        torch.cat([case.x] * 3)


def test_thrashing_ends_with_a_budget_that_does() -> None:
    case = Chain(3)
    mode = reprise.online(case.mode.budget_bytes, smallest=1024, most_recomputation=1e-9)
    said = r"By a simulation of the calls, .* are enough; with .* nothing has to be computed again"
    with mode, pytest.raises(reprise.BudgetExceeded, match=said):
        made = chain(case.x)
        for _ in range(3):
            made[0].sum(), made[6].sum(), made[11].sum()


def test_modes_work_inside() -> None:
    model, x = ResNet(), torch.randn(2, 3, 24, 24)
    with FlopCounterMode(display=False) as plain:
        model(x).sum().backward()
    with reprise.online("1GiB"):
        with FlopCounterMode(display=False) as inner:
            model(x).sum().backward()
        with FakeTensorMode():
            assert type(torch.empty(3, 4) @ torch.empty(4, 5)).__name__ == "FakeTensor"
        assert torch.vmap(torch.dot)(x.flatten(1), x.flatten(1)).equal(torch.vmap(torch.dot)(x.flatten(1), x.flatten(1)))
    assert inner.get_total_flops() == plain.get_total_flops() > 0


def test_compiled_code_reads_what_was_taken_away() -> None:
    compiled = torch.compile(lambda a, b: (a * b + a).relu() - b, backend="aot_eager", fullgraph=True)
    case = Chain()
    expected = [compiled(y, case.x) for y in case.expected]
    case = Chain()
    with case.mode as mode:
        made = chain(case.x)
        for y, right in zip(made, expected, strict=True):
            assert compiled(y, case.x).equal(right)
        mode.set_budget("1GiB")


def test_threads_share_the_budget() -> None:
    case = Chain(12)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(20):
                made = chain(case.x, 6)
                wrong.extend(i for i, y in enumerate(made) if not y.equal(case.expected[i]))
        except reprise.BudgetExceeded as error:
            wrong.append(error)

    with case.mode as mode:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _torch.peak_bytes(DEVICE) <= mode.budget_bytes
    assert wrong == []


def test_steps_leave_nothing_behind() -> None:
    torch.manual_seed(0)
    model = ResNet()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        image_loss(model, 0).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    plain = peak_of(step)
    optimizer.zero_grad()
    with inside(0.6, plain):
        step()
        optimizer.zero_grad()
        before = allocated()
        for _ in range(20):
            step()
        optimizer.zero_grad()
        assert allocated() == before


@on_host
def test_it_counts_what_is_older_than_the_meter() -> None:
    older = torch.empty(1 << 16, dtype=torch.uint8)
    known = reprise.online("1GiB", older)  # The meter has seen it.
    with known:
        pass
    foreign = torch.frombuffer(bytearray(1 << 16), dtype=torch.uint8)
    with reprise.online("1GiB", foreign) as mode:
        assert mode.summary.peak_bytes == _torch.peak_bytes(DEVICE) + (1 << 16)


def test_a_process_may_end_inside() -> None:
    program = """
import torch, reprise
mode = reprise.online("1GiB").__enter__()
model = reprise.restore(torch.nn.Linear(64, 64))
model(torch.randn(256, 64)).sum().backward()
raise SystemExit(3)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (3, "")


def test_an_interrupt_leaves_everything_as_it_was() -> None:
    case = Chain()
    with contextlib.suppress(KeyboardInterrupt), case.mode as mode:
        made = chain(case.x)
        mode.set_budget("1GiB")
        raise KeyboardInterrupt
    case.check(made)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        reprise.online(0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        reprise.online(0)
    with pytest.raises(TypeError, match="modules, optimizers and tensors"):
        reprise.online("1GiB", "model").__enter__()  # type: ignore[arg-type]
    with reprise.online("1GiB"), pytest.raises(ValueError, match="another"):
        reprise.online("1GiB").__enter__()


def steps_of(model: nn.Module, steps: int = 3) -> list[tuple]:
    """Trains a model with graph breaks and returns everything that has to be the same."""
    optimizer = torch.optim.AdamW(model.parameters())
    bits = []
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = model(torch.randn(1024, 64)).pow(2).mean()
        loss.backward()
        optimizer.step()
        bits.append(bits_of(loss))
    return bits + [bits_of(parameter) for parameter in model.parameters()]


@pytest.mark.parametrize("capture", ["auto", "online"])
def test_a_model_that_cannot_be_captured_runs_inside_its_budget(capture: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    plain, model = Breaks(), Breaks()
    model.load_state_dict(plain.state_dict())
    before = allocated()
    peak = peak_of(lambda: steps_of(copy.deepcopy(plain)))
    budget = before + peak * 6 // 10
    expected = steps_of(plain)
    reprise.compile(model, budget - allocated() + before, capture=capture)
    try:
        assert steps_of(model) == expected
        assert model.plan.online.summary.evictions > 0
        assert _torch.peak_bytes(DEVICE) <= model.plan.online.budget_bytes
        assert ("runs in the online mode from now on" in caplog.text) == (capture == "auto")
        assert "trained outside" not in caplog.text
        model.plan.set_budget("1GiB")
        assert len(steps_of(model)) == len(expected)
        assert model.plan.online.budget_bytes == 1 << 30
    finally:
        reprise.restore(model)
    with reprise.online("1GiB"):  # The model's mode has ended.
        pass


def test_a_model_that_cannot_be_captured_is_verified_and_explained() -> None:
    torch.manual_seed(0)
    model = Breaks()
    batch = torch.randn(512, 64)
    result = reprise.verify(model, batch, 1 << 30)
    assert result.ok and result.planner == "online" and result.predicted_peak_bytes is None
    beside = allocated()
    tight = beside + (result.plain_peak_bytes - beside) * 8 // 10
    result = reprise.verify(model, batch, tight)
    assert result.ok and result.budget_bytes == tight, str(result)
    assert result.planned_peak_bytes <= tight < result.plain_peak_bytes
    assert "planned (online)" in str(result)
    reprise.compile(model, tight)
    try:
        model(batch).sum().backward()
        told = reprise.explain(model)
        assert told.budget_bytes == tight and told.steps == 1 and told.evictions > 0
        assert "online: calls run as they come" in str(told)
        with pytest.raises(reprise.RepriseError, match="run in the online mode"):
            model.plan.save("plan.json")
    finally:
        reprise.restore(model)


@library.custom_op("reprise_tests::untraceable", mutates_args=())
def untraceable(x: Tensor) -> Tensor:
    return x.clone()


@untraceable.register_fake
def _(x: Tensor) -> Tensor:
    raise RuntimeError("there is no way to say what this makes")


@library.custom_op("reprise_tests::untraceable_in_backward", mutates_args=())
def untraceable_in_backward(x: Tensor) -> Tensor:
    return x.clone()


untraceable_in_backward.register_fake(torch.empty_like)
untraceable_in_backward.register_autograd(lambda ctx, grad: untraceable(grad))


class Applies(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(64, 64), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x).tanh()).sum()


@pytest.mark.parametrize(("function", "error", "reason"), [
    (lambda x: x[x > 0], reprise.Unsupported, "depends on numbers in a tensor"),
    pytest.param(lambda x: torch.linalg.inv(x.T @ x + torch.eye(64, device=x.device)), reprise.Unsupported,
                 "looks whether it went well",
                 marks=pytest.mark.skipif(torch.__version__ < "2.13", reason="it is captured there")),
    (lambda x: x.repeat_interleave(torch.tensor([1, 2] * 32, device=x.device), dim=1, output_size=96),
     reprise.Unsupported, "how often it repeats each element depends on the numbers in a tensor"),
    (untraceable_in_backward, reprise.GraphBreak, "there is no way to say what this makes"),
])
def test_what_cannot_be_planned_over_runs_in_the_online_mode(function: Any, error: type[Exception], reason: str,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    x, model = torch.randn(512, 64), Applies(function)
    with pytest.raises(error, match=reason):
        reprise.compile(model, "1GiB", capture="graph")(x)
    assert reprise.verify(model, x, "1GiB").planner == "online"
    assert reason in caplog.text


def test_auto_captures_what_can_be_captured() -> None:
    model = reprise.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), "1GiB")
    model(torch.randn(4, 8)).sum().backward()
    assert model.plan.ready
    assert model.plan.online is None
    reprise.restore(model)


def test_two_losses_are_pointed_to_the_online_mode() -> None:
    model = reprise.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), "1GiB")
    output = model(torch.randn(4, 8))
    with pytest.raises(reprise.Unsupported, match='capture="online"'):
        output.sum().backward(retain_graph=True)
    reprise.compile(model, "1GiB", capture="online")
    output = model(torch.randn(4, 8))
    output.sum().backward(retain_graph=True)
    output.pow(2).sum().backward()
    reprise.restore(model)


def test_options_that_contradict_the_online_mode_are_refused() -> None:
    with pytest.raises(ValueError, match="'auto', 'graph' or 'online'"):
        reprise.compile(nn.Linear(2, 2), capture="eager")
    with pytest.raises(ValueError, match="operators of eager"):
        reprise.compile(nn.Linear(2, 2), capture="online", engine="fused")
    with pytest.raises(reprise.Unsupported, match="works on the CPU and on CUDA, and the model lies on meta"):
        reprise.compile(nn.Linear(2, 2, device="meta"), capture="online")
