"""reprise.verify: checks that training is the same and stays inside the budget."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import pickle
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from .. import _core, memory
from ..errors import cannot_be_trained
from ..native import _torch
from ..trace.joint_graph import EAGER, FUSED
from .arguments import call_arguments, device_of
from .compiled_model import compile, restore
from .fused_step import STEPS_BEFORE
from .model_plan import ModelPlan
from .settings import CLOSE
from .tensor_parallel import refuse_distributed

CLOSE_TO_EAGER = 1.5  # how large errors to fp64 may be with slices="close", in terms of eager's
OF_FP64 = 1e-14  # errors to fp64 that are its own


@dataclass
class Verification:
    """The results of plain and of planned training, from the same state."""

    budget_bytes: int | None
    plain_peak_bytes: int
    planned_peak_bytes: int
    predicted_peak_bytes: int | None  # None: steps ran in the online mode
    plain_seconds: float
    planned_seconds: float
    planner: str
    slices: int = 1  # in which a chain of calls ran
    different: list[str] = field(default_factory=list)  # names of tensors that are not the same bit for bit
    # With engine="fused", which does not give eager's bits, the planned step is compared with the unplanned one of the same
    # kernels, and both engines with fp64: the largest errors of each gradient, plain and planned, relative to the gradient.
    # With close slices whose bits differ, the root mean square of its errors.
    engine: str = EAGER
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    tolerance: float = 0.0
    unrepeatable: list[str] = field(default_factory=list)  # with engine="fused": kernels that add in any order, and other calls
    # that may give other bits in another run
    close: bool = False  # slices="close" was asked for, which may round differently
    shapes: str = ""  # of the inputs
    unrepeated: list[str] = field(default_factory=list)  # names of tensors in which plain steps differ from each other
    others: list[Verification] = field(default_factory=list)  # with further inputs, by the same compiled model

    @property
    def same(self) -> bool:
        return not self.different

    @property
    def far(self) -> list[str]:
        """Gradients whose error is more than twice eager's, or 1.5 times with close slices, and above the tolerance."""
        times = CLOSE_TO_EAGER if self.close else 2
        return [name for name, (plain, planned) in self.errors.items() if not planned <= times * plain + self.tolerance]

    @property
    def error_means(self) -> tuple[float, float]:
        """Over all gradients, plain and planned."""
        count = max(len(self.errors), 1)
        return sum(plain for plain, _ in self.errors.values()) / count, sum(each for _, each in self.errors.values()) / count

    @property
    def strays(self) -> bool:
        """Whether close slices are further from fp64 than 1.5 times eager, on average over all gradients."""
        plain, planned = self.error_means
        return self.close and not planned <= CLOSE_TO_EAGER * plain + OF_FP64

    @property
    def inside(self) -> bool:
        return self.budget_bytes is None or self.planned_peak_bytes <= self.budget_bytes

    @property
    def ok(self) -> bool:
        """Also with all further inputs. Where calls add in any order, errors to fp64 count and not bits."""
        as_asked = self.same or self.close or bool(self.unrepeatable and self.errors)
        here = as_asked and self.inside and not self.far and not self.strays
        return here and all(other.ok for other in self.others)

    def __str__(self) -> str:
        return "\n\n".join(one._table(with_inputs=bool(self.others)) for one in (self, *self.others))

    def _table(self, with_inputs: bool) -> str:
        budget = "none" if self.budget_bytes is None else _core.format_bytes(self.budget_bytes)
        rows = [
            ("", "plain", f"planned ({self.planner}{f', {self.slices} slices' if self.slices > 1 else ''})"),
            ("peak", _core.format_bytes(self.plain_peak_bytes), _core.format_bytes(self.planned_peak_bytes)),
            ("predicted peak", "", "none" if self.predicted_peak_bytes is None else
             _core.format_bytes(self.predicted_peak_bytes)),
            ("budget", "", budget + ("" if self.inside else "  EXCEEDED")),
            ("step", f"{1e3 * self.plain_seconds:.1f} ms", f"{1e3 * self.planned_seconds:.1f} ms"),
            ("bits", "", "the same" if self.same else f"{len(self.different)} tensors differ: "
             + ", ".join(self.different[:5])),
        ]
        if self.unrepeated:
            rows.append(("repeats", f"{len(self.unrepeated)} differ", "plain steps from the same state differ from each other: "
                         + ", ".join(self.unrepeated[:5])))
        if self.engine == FUSED:
            rows[-1] = (rows[-1][0], "", f"{rows[-1][2]}, of planned and unplanned kernels")
            rows.append(self._error_row())
            if self.unrepeatable:
                rows.append(("any order", "", f"{len(self.unrepeatable)} calls add in any order: they run once, and may give "
                             f"other bits in every step: {', '.join(self.unrepeatable)}"))
        elif self.close and not self.same:
            rows[-1] = (rows[-1][0], "", f"{rows[-1][2]}, as slices='close' may")
            rows.append(self._error_row())
        if with_inputs:
            rows.insert(1, ("inputs", "", self.shapes))
        return "\n".join(f"{name:<16}{plain:>14}   {planned}" for name, plain, planned in rows)

    def _error_row(self) -> tuple[str, str, str]:
        if not self.errors:
            return "error to fp64", "", "not compared: the step draws random numbers"
        far = f"  TOO LARGE in {len(self.far)}: {', '.join(self.far[:3])}" if self.far else ""
        if self.close:
            plain, planned = self.error_means
            return ("error to fp64", f"{plain:.1e}", f"{planned:.1e} on average, {planned / max(plain, OF_FP64):.2f} of eager's, "
                    f"of which {CLOSE_TO_EAGER} are allowed{'  TOO LARGE' if self.strays else ''}{far}")
        worst = max(self.errors, key=lambda name: self.errors[name][1])
        plain, planned = self.errors[worst]
        return "error to fp64", f"{plain:.1e}", f"{planned:.1e} at most, in the {worst}{far}"


def verify(model: nn.Module, inputs: Any, budget: str | int | None = None, *,
           loss: Callable[[Any], Tensor] | None = None, repeats: int = 3, also: Sequence[Any] = (),
           **options: Any) -> Verification:
    """Trains one step plain and one planned, from the same parameters, buffers and random state,
    and compares loss, gradients, buffers and the position of the random generators bit by bit.

    inputs: a tensor, a tuple of arguments, a dict of keyword arguments, or (args, kwargs).
    also: further inputs, such as batches of other sizes, with which the compiled model is called in turn. Their results
        are in `others` of the result.
    loss: a function of the model's output; by default its `.loss`, or the output if it is one number, or the
        sum of everything in it.
    options: those of reprise.compile. With engine="fused" the planned step is compared with the unplanned one of the same
        kernels, and gradients of both engines with those of a copy of the model in fp64.

    The model ends as it began. If reprise.compile had been applied to it, that is undone.
    """
    fused = options.get("engine") == FUSED
    if fused and also:
        raise ValueError('also: with engine="fused" every shape is planned by itself; verify one at a time')
    refuse_distributed(model, "reprise.verify")
    restore(model)
    device = device_of(model, inputs)
    begin = _State(model)
    pairs = [(_Runs(model, *call_arguments(given), loss or default_loss, device),
              _Runs(model, *call_arguments(given), loss or default_loss, device)) for given in (inputs, *also)]
    try:
        for plain, _ in pairs:
            plain.run()
            plain.run()
        if fused:
            plain, planned = pairs[0]
            return _compare_fused(model, budget, options, plain, planned, repeats)
        compile(model, budget, **options)
        results = [_compare(model, plain, planned, repeats) for plain, planned in pairs]
        if options.get("slices") == CLOSE:
            for result, (plain, planned) in zip(results, pairs, strict=True):
                _add_errors(model, result, plain, planned)
        results[0].others = results[1:]
        return results[0]
    finally:
        restore(model)
        begin.put_back()


def _add_errors(model: nn.Module, result: Verification, plain: _Runs, planned: _Runs) -> None:
    """The errors of gradients to fp64, if bits differ."""
    result.close, result.tolerance = True, _rounding(plain)
    if result.same:
        return
    planned.run(keep=True)  # first, because what is kept of other runs would count beside it
    with _as_it_was(model):
        plain.run(keep=True)
        exact = None if plain.draws else _in_fp64(plain)
    known = {} if exact is None else _errors(plain.result, exact, _root_mean_square)
    found = {} if exact is None else _errors(planned.result, exact, _root_mean_square)
    result.errors = {name: (known[name], found[name]) for name in found}


def _rounding(plain: _Runs) -> float:
    """A number that was rounded once may be off by so much of itself, in the type that the step computes in. A gradient of few
    numbers may happen to have none of it with eager's order of adding."""
    types = {parameter.dtype for parameter in plain.model.parameters()}
    if torch.is_autocast_enabled(plain.device.type):
        types.add(torch.get_autocast_dtype(plain.device.type))
    return max((torch.finfo(dtype).eps / 2 for dtype in types if dtype.is_floating_point), default=0.0)


def _compare_fused(model: nn.Module, budget: str | int | None, options: dict[str, Any], plain: _Runs, planned: _Runs,
                   repeats: int) -> Verification:
    """Nothing but numbers is kept of the other runs while planned steps run, because tensors would count."""
    compile(model, budget, **options)
    plan: ModelPlan = model.__dict__["plan"]
    for _ in range(STEPS_BEFORE + 1):
        planned.run()
    plan.set_partition(plan.partition)  # the one that was chosen for the budget, also without a budget
    plan.set_budget(None)
    with _as_it_was(model):
        plain.run(keep=True)
        exact = None if plain.draws else _in_fp64(plain)
        known = {} if exact is None else _errors(plain.result, exact)
    planned.run(keep=True)
    del planned.seconds[:-1]
    found = {} if exact is None else _errors(planned.result, exact)
    expected = planned.digests
    exact = None
    plain.forget()
    planned.forget()
    plan.set_budget(budget)
    result = _compare(model, plain, planned, repeats)
    result.engine, result.tolerance = FUSED, 1e-3 if torch.is_autocast_enabled(plain.device.type) else 1e-5
    result.errors = {name: (known[name], found[name]) for name in found}
    result.different = _differences(expected, planned.digests)
    result.unrepeatable = plan.program.unrepeatable
    return result


def _in_fp64(plain: _Runs) -> dict[str, Tensor | None]:
    def wide(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    runs = _Runs(copy.deepcopy(plain.model).double(), tree_map(wide, plain.args), tree_map(wide, plain.kwargs), plain.loss,
                 plain.device)
    with torch.autocast(plain.device.type, enabled=False):
        runs.run(keep=True)
    return runs.result


def _largest(errors: Tensor) -> float:
    return float(errors.abs().max())


def _root_mean_square(errors: Tensor) -> float:
    return float(errors.square().mean().sqrt())


def _errors(found: dict[str, Tensor | None], exact: dict[str, Tensor | None],
            size: Callable[[Tensor], float] = _largest) -> dict[str, float]:
    """The error of each gradient, relative to its largest number. Some gradients are zero but for rounding: their
    errors are relative to the largest number of all."""
    gradients = {name: tensor for name, tensor in exact.items() if tensor is not None and name.startswith("gradient")}
    sizes = {name: float(tensor.abs().max()) if tensor.numel() else 0.0 for name, tensor in gradients.items()}
    floor = max(sizes.values(), default=0.0) / 100
    errors = {}
    for name, tensor in gradients.items():
        other = found[name]
        if other is not None and tensor.numel():
            errors[name] = size(other.double() - tensor) / max(sizes[name], floor, 1e-300)
    return errors


def _bytes_of(tensor: Tensor) -> bytearray:
    """A copy in memory that no budget counts."""
    return bytearray(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _digest(tensor: Tensor | None) -> tuple[Any, ...] | None:
    if tensor is None:
        return None
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(_bytes_of(tensor)).hexdigest()


def _compare(model: nn.Module, plain: _Runs, planned: _Runs, repeats: int) -> Verification:
    planned.run()
    plan: ModelPlan = model.__dict__["plan"]
    predicted = None
    for repeat in range(repeats):
        if plan.online is None:  # it would act on plain steps, too
            if repeat > 0:
                with _as_it_was(model):
                    plain.run()
            # This waits for the end of the search, so that the next step runs the plan whose peak it is.
            predicted = plan.peak_bytes
        planned.run()
    different = _differences(plain.digests, planned.digests)
    if plan.online is not None:
        return Verification(
            budget_bytes=plan.online.budget_bytes, plain_peak_bytes=plain.peak_bytes, planned_peak_bytes=planned.peak_bytes,
            predicted_peak_bytes=None, plain_seconds=plain.seconds[-1], planned_seconds=statistics.median(planned.seconds[1:]),
            planner="online", different=different, unrepeated=sorted(plain.unrepeated), shapes=plain.shapes)
    # A planned step reads the allocator's peak in parts and resets it after each part.
    peak = max(planned.peak_bytes, plan.measured_peak_bytes or 0)
    return Verification(
        budget_bytes=plan.budget_bytes, plain_peak_bytes=plain.peak_bytes, planned_peak_bytes=peak,
        predicted_peak_bytes=predicted, plain_seconds=statistics.median(plain.seconds[1:]),
        planned_seconds=statistics.median(planned.seconds[1:]), planner=plan.planner, slices=plan.slices,
        different=different, unrepeated=sorted(plain.unrepeated), shapes=plain.shapes)


@contextlib.contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Lets the model run without its plan."""
    call, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        yield
    finally:
        model._compiled_call_impl = call


def default_loss(output: Any) -> Tensor:
    found: Tensor | None = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is not None:
        return found
    if isinstance(output, Tensor) and output.numel() == 1:
        return output.sum()
    parts = [t.float().sum() for t in tree_leaves(output) if isinstance(t, Tensor) and t.requires_grad]
    return torch.stack(parts).sum() if parts else torch.zeros(())


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of tensors that are not the same bit for bit, by their digests."""
    return [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]


class _Runs:
    """Runs steps of one kind, each from the state that the model had at the beginning."""

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any],
                 loss: Callable[[Any], Tensor], device: torch.device) -> None:
        self.model, self.args, self.kwargs, self.loss, self.device = model, args, kwargs, loss, device
        self.begin = _State(model)  # taken before the model is compiled, it does not count beside planned steps
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self.draws = False  # random numbers
        self.digests: dict[str, Any] = {}  # of what the latest run gave
        self.unrepeated: set[str] = set()  # what a later run gave otherwise
        self.result: dict[str, Tensor | None] = {}  # the same as tensors, which would count beside other runs

    @property
    def shapes(self) -> str:
        return ", ".join(str(tuple(t.shape)) for t in tree_leaves((self.args, self.kwargs)) if isinstance(t, Tensor))

    def forget(self) -> None:
        self.result = {}

    def run(self, keep: bool = False) -> None:
        self.forget()
        try:
            self._run(keep)
        finally:
            self.begin.put_back()

    def _run(self, keep: bool) -> None:
        self.model.zero_grad(set_to_none=True)
        begin_states = _random_digests(self.device)
        there = _torch.storage_bytes([t for t in tree_leaves([*self.model.parameters(), *self.model.buffers(), self.args,
                                                              self.kwargs]) if isinstance(t, Tensor)], self.device)
        _synchronize(self.device)
        memory.reset_peak(self.device)
        entry = _torch.allocated_bytes(self.device)
        begin = time.perf_counter()
        output = self.model(*self.args, **self.kwargs)
        loss = self.loss(output)
        if not loss.requires_grad:
            raise cannot_be_trained(type(self.model).__name__)
        loss.backward()
        _synchronize(self.device)
        self.seconds.append(time.perf_counter() - begin)
        if self.device.type == "cpu":
            self.peak_bytes = there + memory.peak_bytes(self.device) - entry
        else:
            self.peak_bytes = memory.peak_bytes(self.device)
        random_states = _random_digests(self.device)
        self.draws = begin_states != random_states
        self.result = self._take_result(loss)
        before, self.digests = self.digests, {name: _digest(tensor) for name, tensor in self.result.items()} | random_states
        if before:
            self.unrepeated.update(_differences(before, self.digests))
        if not keep:
            self.forget()

    def _take_result(self, loss: Tensor) -> dict[str, Tensor | None]:
        result: dict[str, Tensor | None] = {"loss": loss.detach().cpu()}
        for name, parameter in self.model.named_parameters():
            result[f"gradient of {name}"] = None if parameter.grad is None else parameter.grad.cpu()
        for name, buffer in self.model.named_buffers():
            result[f"buffer {name}"] = buffer.detach().cpu().clone()
        return result


def _random_digests(device: torch.device) -> dict[str, Any]:
    """Where the generators stand that models draw from."""
    states: dict[str, Any] = {"random state": _digest(torch.get_rng_state()),
                              "random state of Python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest()}
    if (numpy := _numpy_random()) is not None:
        states["random state of NumPy"] = hashlib.sha256(pickle.dumps(numpy.get_state(legacy=False))).hexdigest()
    if device.type == "cuda":
        states["random state of the device"] = _digest(torch.cuda.get_rng_state(device))
    return states


def _numpy_random() -> Any:
    """The module of NumPy's global generator; None: nothing has imported NumPy."""
    return sys.modules.get("numpy.random")


class _State:
    """Parameters, buffers, gradients and random states as they are now, in memory that no budget counts."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors = [*model.parameters(), *model.buffers()]
        self.contents = [_bytes_of(tensor) for tensor in self.tensors]
        self.gradients = [t.grad for t in self.tensors]
        self.devices = list(dict.fromkeys(t.device for t in self.tensors if t.device.type == "cuda"))
        self.random = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in self.devices]
        numpy = _numpy_random()
        self.others = random.getstate(), None if numpy is None else numpy.get_state(legacy=False)

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, content, gradient in zip(self.tensors, self.contents, self.gradients, strict=True):
                if tensor.numel():
                    tensor.copy_(torch.frombuffer(content, dtype=tensor.dtype).view(tensor.shape))
                tensor.grad = gradient
        torch.set_rng_state(self.random[0])
        for device, state in zip(self.devices, self.random[1], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self.others[0])
        if self.others[1] is not None:
            _numpy_random().set_state(self.others[1])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
