"""After an error in the middle of a step, nothing is lost or leaked, and the next step is right."""

from __future__ import annotations

import contextvars
import copy
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, library, nn
from training import Mlp, allocated, batch, smallest_budget, state_of

import reprise
from reprise.native import _torch


@pytest.fixture(autouse=True)
def quick(one_thread: None) -> Iterator[None]:
    """Makes garbage collections quick, of which there are many here, by leaving out the objects that torch itself holds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


failing: dict[str, Any] = {"in": 0, "sleep": 0.0}


def _trip(where: str) -> None:
    if failing["in"]:
        failing["in"] -= 1
        if failing["in"] == 0:
            raise FloatingPointError(f"made to fail in {where}")
    if failing["sleep"]:
        time.sleep(failing["sleep"])


@library.custom_op("reprise_tests::brittle", mutates_args=())
def brittle(x: Tensor) -> Tensor:
    _trip("forward")
    return x * 2


@library.custom_op("reprise_tests::brittle_backward", mutates_args=())
def brittle_backward(x: Tensor) -> Tensor:
    _trip("backward")
    return x * 2


@brittle.register_fake
@brittle_backward.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


for operator in (brittle, brittle_backward):
    reprise.declare_repeatable(operator._opoverload)
brittle.register_autograd(lambda ctx, grad: brittle_backward(grad))


class Brittle(Mlp):
    """A model with dropout and batch norm, which make a step that was only half done visible in the next one."""

    def __init__(self) -> None:
        super().__init__(layers=4)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        for layer in self.layers:
            x = brittle(self.dropout(torch.tanh(layer(x)).sigmoid()))
        return self.head(x)


def step(model: nn.Module, seed: int = 0) -> None:
    torch.manual_seed(seed)
    output = model(batch(rows=64, seed=seed))
    output.square().mean().backward()


class Recovery:
    """A planned model after two steps inside the smallest budget, and what its third step must give."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        plain = Brittle()
        first = copy.deepcopy(plain)
        for _ in range(3):
            self.begin = copy.deepcopy(plain.state_dict())
            plain.zero_grad()
            step(plain)
        self.wanted = state_of(plain)
        budget = smallest_budget(first, lambda m: [step(m) or m.zero_grad() for _ in range(3)])
        self.model = reprise.compile(first, budget)
        for _ in range(2):
            step(self.model)
            self.model.zero_grad()
        assert self.model.plan.recompute_ns > 0

    def check(self, fail: Callable[[nn.Module], bool], at_once: bool = True) -> int:
        """Calls `fail` until it says that the step did not fail. After each failure, memory must be as before (at once, or
        after the next step), and a step from the same state must give eager's bits."""
        gc.collect()
        level = allocated()
        failures = 0
        while fail(self.model):
            failures += 1
            self.model.zero_grad()
            gc.collect()
            assert allocated() == level or not at_once, f"failure {failures}"
            self.model.load_state_dict(self.begin)
            step(self.model)
            different = [name for name, bits in state_of(self.model).items() if bits != self.wanted[name]]
            assert not different, f"failure {failures}: {different}"
            self.model.zero_grad()
            assert allocated() == level, f"step after failure {failures}"
        return failures


def test_an_exception_of_an_operator_passes_through_and_the_next_step_is_right() -> None:
    recovery = Recovery()
    count = 0

    def fail(model: nn.Module) -> bool:
        nonlocal count
        count += 1
        failing["in"] = count
        try:
            step(model)
        except FloatingPointError as error:
            assert "made to fail" in str(error)
            return True
        finally:
            failing["in"] = 0
        return False

    assert recovery.check(fail) >= 8  # There are more if the operator is computed again.


@pytest.fixture
def no_second_kernel() -> Iterator[None]:
    """On Arm, a matrix product that runs out of memory in oneDNN uses another kernel, and so do all later ones."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.mark.usefixtures("no_second_kernel")
def test_running_out_of_memory_anywhere_is_survived() -> None:
    recovery = Recovery()
    count = 0

    def fail(model: nn.Module) -> bool:
        nonlocal count
        count += 1
        torch.manual_seed(0)
        x = batch(rows=64)
        _torch.fail_allocation(count)
        try:
            model(x).square().mean().backward()
        except (torch.OutOfMemoryError, RuntimeError) as error:
            assert "made to fail" in str(error)
            return True
        finally:
            _torch.fail_allocation(0)
        return False

    assert recovery.check(fail) > 40


def test_ctrl_c_in_the_middle_of_a_step_is_survived() -> None:
    recovery = Recovery()
    chances = iter([0.05, 0.3])

    def fail(model: nn.Module) -> bool:
        delay = next(chances, None)
        if delay is None:
            return False
        failing["sleep"] = 0.1
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            step(model)
        except KeyboardInterrupt:
            return True
        finally:
            timer.join()
            failing["sleep"] = 0.0
        raise AssertionError("the step ran to its end")

    assert recovery.check(fail) == 2


def test_ctrl_c_ends_a_step_that_runs_no_python() -> None:
    model = reprise.compile(Mlp(width=256, layers=10), "1GB")
    x = batch(rows=4096, width=256)
    model(x).sum().backward()
    model.zero_grad()
    gc.collect()
    level = allocated()
    begin = time.monotonic()
    loss = model(x).sum()
    forward = time.monotonic() - begin
    reached = ""
    for _ in range(50):  # On a busy machine, other steps may be quicker than the one that was timed.
        loss = None
        timer = threading.Timer(forward / 3, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            reached = "forward"
            timer.start()
            loss = model(x).sum()
            reached = "backward"
            loss.backward()
            reached = "the end"
            time.sleep(60)
        timer.join()
        del loss
        model.zero_grad()
        gc.collect()
        assert allocated() == level
        if reached == "forward":
            break
    assert reached == "forward" or forward < 0.1
    model(x).sum().backward()


def test_an_exception_in_a_hook_of_a_gradient_is_survived() -> None:
    """Exception: gradients that autograd has not delivered stay in its queue until the next backward."""
    recovery = Recovery()
    chances = iter(["layers.0.weight", "head.bias"])

    def fail(model: nn.Module) -> bool:
        name = next(chances, None)
        if name is None:
            return False

        def refuse(gradient: Tensor) -> None:
            raise KeyboardInterrupt

        hook = model.get_parameter(name).register_hook(refuse)
        try:
            step(model)
        except KeyboardInterrupt:
            return True
        finally:
            hook.remove()
        raise AssertionError("the hook did not run")

    assert recovery.check(fail, at_once=False) == 2


def test_an_exception_of_the_caller_between_forward_and_backward_is_survived() -> None:
    recovery = Recovery()
    chances = iter(range(3))

    def fail(model: nn.Module) -> bool:
        if next(chances, None) is None:
            return False
        torch.manual_seed(0)
        try:
            functional_error(model(batch(rows=64)))
        except RuntimeError:
            return True
        raise AssertionError("no error")

    def functional_error(output: Tensor) -> None:
        (output + torch.zeros(3, 3)).sum().backward()

    assert recovery.check(fail) == 3


def test_an_exception_while_the_model_is_captured_is_survived() -> None:
    class Wrong(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] == 3:
                raise FloatingPointError("three rows")
            return super().forward(x)

    model = reprise.compile(Wrong(), "1GB")
    with pytest.raises(Exception, match="three rows"):
        model(batch(3))
    step(model)
    with pytest.raises(Exception, match="three rows"):
        model(batch(3))
    step(model)


def test_a_wrong_shape_is_an_error_and_the_next_step_works() -> None:
    model = reprise.compile(Mlp(), "1GB")
    with pytest.raises(RuntimeError):
        model(batch(width=5))
    step(model)


@pytest.mark.usefixtures("no_second_kernel", "own_cache")
def test_an_error_while_it_is_profiled_is_survived() -> None:
    plain = Mlp()
    for nth in range(1, 62, 5):  # The first of them while the model is traced.
        model = reprise.compile(copy.deepcopy(plain), "1GB")
        _torch.fail_allocation(nth)
        try:
            with pytest.raises(RuntimeError, match="made to fail"):
                step(model)
        finally:
            _torch.fail_allocation(0)
        assert all(p.grad is None for p in model.parameters())
    for each in (plain, model):
        step(each)
    assert model.plan.online is None
    assert state_of(plain) == state_of(model)


def test_a_thousand_steps_leave_no_trace() -> None:
    model = reprise.compile(Mlp(layers=2), "1GB")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = batch()

    def train(count: int) -> tuple[int, ...]:
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        gc.collect()
        return allocated(), len(contextvars.copy_context())

    before = train(10)
    objects = len(gc.get_objects())
    assert train(1000) == before
    assert len(gc.get_objects()) - objects < 100


def test_a_dropped_model_is_freed() -> None:
    model = reprise.compile(Mlp(width=64), "1GB")
    model(batch(width=64)).sum().backward()
    gc.collect()
    level = allocated()
    del model
    torch._dynamo.reset()
    gc.collect()
    assert allocated() < level - 4 * 64 * 64 * 4
