"""One captured step in use, as torch.compile calls it: a session of the runtime, and what that needs from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import _core
from ..errors import InfeasibleBudget, Unsupported
from ..measuring import measuring
from ..native import _torch
from ..optimizer_state import optimizer_state_bytes, optimizer_tensors
from ..trace.captured import Captured
from ..trace.fused.lowered import FIRST_FORM, Form
from ..trace.layouts import Layouts
from ..trace.objects import Objects
from ..trace.unreduced import MicroBatch
from .settings import Settings


class StepSession:
    """What the compiled model calls, and what its plan reports."""

    def __init__(self, capture: Callable[[Layouts], Captured], settings: Settings, device: torch.device,
                 name: str, form: Form = FIRST_FORM, family: _torch.SizeFamily | None = None,
                 objects: Objects | None = None, readers: Sequence[int] = ()) -> None:
        """family: what the step shares with the same step at other sizes, if it is not captured and measured by itself.
        objects: inputs that come back among the outputs and gradients. readers: how often the graph reads each input."""

        def captured(layouts: Layouts) -> tuple[_torch.Program, dict[int, str]]:
            with settings.preparation.phase("capturing"):
                made = capture(layouts)
            return made.program, made.keys

        _torch.install_meter()
        program, keys = captured({} if family is not None else _torch.CostBook(device).layouts)
        self.name, self.settings, self.device = name, settings, device
        self.form = form  # with eager's operators there is one
        self.plan_is_given = False  # by the user
        self.objects, self.readers = objects or Objects(), readers
        self.runtime = _torch.Session(
            program, keys, settings.options,
            known_tensors=settings.tensors if family is None else settings.tensors_again,
            future_bytes=future_bytes(settings, device), optimizer_state=settings.parkable_state, owned_inputs=settings.owned,
            capture_again=None if family is not None else captured, family=family,
            together=_together(program, settings))

    def forward(self, args: list[Any]) -> list[Any]:
        """Takes the arguments out of the list, so that they can be freed. If the budget is refused, they are in it again."""
        inputs = list(args)
        micro_batches = [MicroBatch(each, inputs, self.readers) for each in self.settings.accumulations]
        args.clear()
        takers = [] if self.settings.parallel is None else self.settings.parallel.takers(inputs)
        for_backward = [inputs[i] for i in self.objects.gradients.values()], micro_batches
        try:
            if self.runtime.last_call > 0:
                outputs, handle = self.runtime.forward(inputs, takers, for_backward)
            else:
                self.measure()
                preparation = self.settings.preparation
                with preparation.phase("first forward"):
                    outputs, handle = self.runtime.forward(inputs, takers, for_backward)
                preparation.seconds["first forward"] -= self.runtime.planning_seconds
            return [*_with(outputs, self.objects.outputs, [inputs[i] for i in self.objects.outputs.values()]), handle]
        except InfeasibleBudget:
            args.extend(inputs)
            raise

    def measure(self) -> None:
        with self.settings.preparation.phase("profiling"), measuring():
            self.runtime.measure()

    def measure_for(self, args: Sequence[Any]) -> None:
        """The same, unless no plan can fit the budget of a call with these arguments."""
        with self.settings.preparation.phase("profiling"), measuring():
            self.runtime.measure_for(args)

    def backward(self, args: list[Any]) -> list[Any]:
        given_back, micro_batches = _torch.objects_of(args[0])
        return _with(backward(args, self.settings, micro_batches), self.objects.gradients, given_back)

    @property
    def graph(self) -> _core.Graph:
        return _core.Graph.from_capsule(self.runtime.graph)

    @property
    def costs(self) -> _core.Costs:
        """The costs of the calls on the device, and of the caller as it is planned for now."""
        return _core.Costs.from_capsule(self.runtime.costs)


def backward(args: list[Any], settings: Settings, micro_batches: Sequence[MicroBatch] = ()) -> list[Any]:
    """Backward of the step whose forward gave the handle, which comes before the gradients."""
    if settings.together is None:
        return _backward(args, settings)
    with settings.together.call():
        for each in micro_batches:
            each.begin_backward()
        gradients = _backward(args, settings)
    for each in micro_batches:
        each.end_backward()
    return gradients


def _backward(args: list[Any], settings: Settings) -> list[Any]:
    handle, *seeds = args
    args.clear()
    if torch._C._autograd._get_current_graph_task_keep_graph():
        raise Unsupported(
            "backward(retain_graph=True) and create_graph=True are not supported: Reprise frees what it "
            "saved while backward runs. Add the losses up and call backward() once, or compile the model with "
            'capture="online", which keeps nothing that the graph does not keep.')
    parallel = settings.parallel
    if parallel is None:
        return _torch.backward(handle, seeds)
    with parallel.backward():
        return _torch.backward(handle, seeds, parallel.take)


def _with(results: list[Any], places: Iterable[int], objects: Iterable[Any]) -> list[Any]:
    for place, given in zip(places, objects, strict=True):
        results[place] = given
    return results


def _together(program: _torch.Program, settings: Settings) -> _torch.Together | None:
    if settings.together is not None:
        return settings.together.for_session(program.groups)
    if program.groups:
        raise Unsupported("the model communicates with other processes, but none of its parameters was distributed "
                          "(torch.distributed.tensor) when it was compiled: compile it after parallelize_module, or move the "
                          "communication out of the model")
    return None


def future_bytes(settings: Settings, device: torch.device) -> Callable[[], int]:
    """Bytes of state that the optimizer will have after its first step and does not have yet, and of memory that nobody else
    counts."""
    known: list[int] = []

    def future() -> int:
        optimizer, parallel = settings.stepper, settings.parallel
        uncounted = parallel.uncounted_bytes if parallel is not None and device.type == "cpu" else 0
        if optimizer is None or settings.parks:  # once there is state, the planner decides where it waits
            return uncounted
        if not known:
            known.append(optimizer_state_bytes(optimizer, device))
        return uncounted + max(0, known[0] - _torch.storage_bytes(optimizer_tensors(optimizer), device))

    return future
