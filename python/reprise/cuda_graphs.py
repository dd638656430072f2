"""A planned step as two CUDA graphs, one of forward and one of backward.

A graph reads and writes the same memory at every replay, so nothing of it is handed out: inputs
are copied in, outputs and gradients are copied out. Parameters and buffers are read and changed
where they lie; when one has moved, the graphs are recorded again. Random masks are kept between
forward and backward, never drawn again.

All memory of the graphs lies in a pool of their own, which stays reserved between steps. What is
compared with the budget is all of that pool and everything that is allocated beside it.
"""

from __future__ import annotations

import collections
import logging
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from . import _core, planning
from .errors import InfeasibleBudget, RepriseError
from .native import _torch

if TYPE_CHECKING:
    from .region import Region

log = logging.getLogger("reprise")

WARM_STEPS = 2  # without graphs first: libraries choose algorithms, and the caller's needs become known
MAX_RECORDINGS = 8  # that were of little use: a model whose parameters move all the time is not for graphs
OF_USE = 100  # steps that pay for a recording
MAX_TRIES = 6  # to make the pool fit
SPARE = 0.005  # of the budget, at first: a loss that the caller keeps is no reason to record again
# "auto": graphs are worth it where issuing the operators takes at least this share of the step's time.
LAUNCH_BOUND = 0.8


@dataclass
class Recorded:
    """Two graphs and the memory they know."""

    device: torch.device
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    executor: Any
    found: planning.Found
    fixed: list[int]  # inputs that are read where they lie
    addresses: list[int]
    changed: list[int]  # of these, what the step changes
    watched: list[int]  # and what backward reads
    copied: list[int]  # inputs that are copied into:
    inputs: list[torch.Tensor]  # without repetition of expanded ones
    seeds: list[torch.Tensor | None]
    outputs: list[torch.Tensor | None]
    gradients: list[torch.Tensor | None]
    budget_bytes: int | None
    outputs_bytes: int  # of their copies
    gradients_bytes: int
    pool_reserved_bytes: int
    pool_allocated_bytes: int
    planned: Any = None  # the region's books
    steps: int = 0
    done: torch.cuda.Event | None = None  # with the memory of the last step
    token: Any = None  # of the step whose backward has not run
    seen: list[torch.Tensor] = field(default_factory=list)  # by that step's backward
    versions: list[int] = field(default_factory=list)

    @property
    def hidden_bytes(self) -> int:
        """Of the pool, in use at every replay and counted by no allocator."""
        return self.pool_reserved_bytes - self.pool_allocated_bytes

    @property
    def pending(self) -> bool:
        return self.token is not None and self.token.pending

    def lies_at(self, inputs: Sequence[Any]) -> bool:
        return _torch.addresses_of([inputs[i] for i in self.fixed]) == self.addresses

    def run_forward(self, inputs: Sequence[Any]) -> list[torch.Tensor | None]:
        if self.done is not None:  # on another stream, maybe
            torch.cuda.current_stream(self.device).wait_event(self.done)
        if self.copied:
            torch._foreach_copy_(self.inputs, [_once(inputs[i]) for i in self.copied])
        self.forward.replay()
        self.steps += 1
        _torch.bump_versions([inputs[i] for i in self.changed])
        self.seen = [inputs[i] for i in self.watched]
        self.versions = _torch.versions_of(self.seen)
        return _torch.copies_of(self.outputs)

    def run_backward(self, seeds: Sequence[Any]) -> list[torch.Tensor | None]:
        self.token = None
        seen, self.seen = self.seen, []
        if _torch.versions_of(seen) != self.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation "
                "between forward and backward: a parameter or buffer of the model. Modify it after backward")
        given = [(static, seed) for static, seed in zip(self.seeds, seeds) if static is not None]
        if pairs := [(static, seed) for static, seed in given if seed is not None]:
            torch._foreach_copy_([static for static, _ in pairs], [seed for _, seed in pairs])
        if absent := [static for static, seed in given if seed is None]:
            torch._foreach_zero_(absent)
        self.backward.replay()
        gradients = _torch.copies_of(self.gradients)
        self.done = torch.cuda.current_stream(self.device).record_event()
        return gradients


class CudaGraphs:
    """Decides when a region's steps run as graphs, and keeps these within the budget."""

    def __init__(self, region: Region, must: bool) -> None:
        self.region = region
        self.must = must
        self.recorded: Recorded | None = None
        self.refused = ""  # why graphs are not used
        self.refused_at: int | None = None  # with this budget
        self.recordings = 0
        self.pace = Pace(region.device)
        self._cleared_bytes = 0  # by recording: workspaces that other threads will take again
        _all.add(self)

    @property
    def hidden_bytes(self) -> int:
        return self.recorded.hidden_bytes if self.recorded is not None else 0

    def ready(self, inputs: Sequence[Any]) -> Recorded | None:
        """The graphs that run the step with these inputs, if any do."""
        budget = self.region.settings.budget_bytes
        if self.refused and self.refused_at == budget:
            if self.must:
                raise RepriseError(self.refused)
            return None
        self.refused = ""
        if self.recorded is not None and self.recorded.pending:
            return None  # its memory is in use until that step's backward has run
        if self.recorded is not None and not self._is_current(inputs, budget):
            self.release()
        if self.recorded is None and self._may_record():
            self._record(inputs)
        return self.recorded

    def _is_current(self, inputs: Sequence[Any], budget: int | None) -> bool:
        return (self.recorded.lies_at(inputs) and self.recorded.budget_bytes == budget and self._over_bytes() <= 0)

    def open(self) -> torch.Tensor:
        """The handle of a step that runs as graphs."""
        self.recorded.token = _torch.Token()
        return _torch.handle_of(self.recorded.token)

    def owner_of(self, handle: torch.Tensor) -> Recorded | None:
        recorded = self.recorded
        if recorded is not None and recorded.token is not None and recorded.token.address == handle.untyped_storage().data_ptr():
            return recorded
        return None

    def peak_bytes(self) -> int:
        """What a step as graphs comes to, by all that is allocated now."""
        region, program, recorded = self.region, self.region.captured.program, self.recorded
        caller = region.caller
        seeds = sum(program.value_bytes(v) for v in region.captured.seed_values)
        return (_torch.allocated_bytes(region.device) + hidden_bytes(region.device) + recorded.outputs_bytes
                + seeds + caller.kept_bytes + max(caller.workspace_bytes, recorded.gradients_bytes))

    def _over_bytes(self) -> int:
        budget = self.region.settings.budget_bytes
        if budget is None:
            return -1
        return self.peak_bytes() + self.region._reserve_bytes() + self.region.excess_bytes - budget

    def _may_record(self) -> bool:
        if self.region.caller.steps < WARM_STEPS:
            return False
        if self.recordings >= MAX_RECORDINGS:
            return self._refuse(f"the model's parameters, or the memory beside it, changed {self.recordings} times")
        return self.must or self.pace.is_launch_bound()

    def _refuse(self, why: str, smallest_bytes: int | None = None) -> bool:
        """Until the budget changes."""
        self.release()
        budget = self.region.settings.budget_bytes
        self.refused = f"{self.region.name} cannot run as CUDA graphs: {why}. Give cuda_graphs='auto' or False."
        self.refused_at = budget
        self.recordings = 0
        self.pace.stop()
        if not self.must:
            log.info("%s runs without CUDA graphs: %s", self.region.name, why)
            return False
        raise RepriseError(self.refused) if smallest_bytes is None else InfeasibleBudget(
            self.refused, budget, smallest_bytes)

    def release(self) -> None:
        """Gives the graphs and their pool back."""
        if self.recorded is None:
            return
        torch.cuda.synchronize(self.region.device)  # their memory goes back to the device at once
        if self.recorded.steps >= OF_USE:
            self.recordings -= 1
        self.recorded.forward.reset()
        self.recorded.backward.reset()
        self.recorded = None
        torch.cuda.empty_cache()

    # -- Recording.

    def _record(self, inputs: Sequence[Any]) -> None:
        region, program = self.region, self.region.captured.program
        begin = time.monotonic()
        fixed, copied = self._sort_inputs(inputs)
        off = [i for i in (*fixed, *copied) if inputs[i].device != region.device]
        if off:
            self._refuse(f"input {off[0]} of the step lies on {inputs[off[0]].device}")
            return
        for other in list(_all):  # of other shapes: two pools are more than one budget holds
            if other is not self and other.region.settings is region.settings and not (
                    other.recorded is not None and other.recorded.pending):
                other.release()
        static = [torch.empty_strided(inputs[i].shape, inputs[i].stride(), dtype=inputs[i].dtype, device=region.device)
                  for i in copied]
        seeds = _torch.empty_seeds(program, set(range(len(region.captured.seed_values))))
        graph = _core.Graph.from_capsule(program.graph(random_once=True))
        self._cleared_bytes = 0
        goal = self._goal(inputs)  # static inputs and seeds are allocated by now
        for _ in range(MAX_TRIES):
            found = planning.find(graph, None if goal is None else max(goal, 0), region.settings.planner,
                                  region.settings.planning_seconds)
            if found.plan is None:
                self._refuse_budget(goal, found)
                return
            try:
                self.recorded = self._capture(inputs, fixed, copied, static, seeds, found)
            except (RuntimeError, ValueError) as error:
                torch.cuda.synchronize(region.device)
                self._refuse(f"an operator cannot be recorded ({str(error).splitlines()[0]})")
                return
            over = self._over_bytes() + self._cleared_bytes
            log.debug("planned for %s, a pool of %d bytes for %d, %d above the budget", goal,
                      self.recorded.pool_reserved_bytes, found.simulation.peak_bytes, over)
            if over <= 0:
                self.recordings += 1
                self.pace.stop()
                log.info("%s: recorded as CUDA graphs in %.1f s, %s in their pool", region.name,
                         time.monotonic() - begin, _core.format_bytes(self.recorded.pool_reserved_bytes))
                return
            self.release()
            goal = found.simulation.peak_bytes - over
        self._refuse(f"their pool did not fit the budget in {MAX_TRIES} tries")

    def _sort_inputs(self, inputs: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Which are read where they lie (what belongs to the model, or is changed by the step), and
        which are copied in."""
        model = self.region.settings.owner
        owned = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())} if model else set()
        changed = set(self.region.captured.program.changed_inputs)
        fixed, copied = [], []
        for i in self.region.captured.program.read_inputs:
            tensor = inputs[i]
            own = tensor.untyped_storage().data_ptr() in owned or (model is None and tensor.requires_grad)
            (fixed if own or i in changed else copied).append(i)
        return fixed, copied

    def _goal(self, inputs: Sequence[Any]) -> int | None:
        """A peak to plan for, by the simulator's count, that leaves room for the copies."""
        region, captured = self.region, self.region.captured
        total = region.ledger.total_bytes([*inputs, *captured.constants], captured.program)
        room = region._room(total)
        if room is None:
            return None
        outputs = sum(captured.program.value_bytes(v) for v in captured.output_values)
        gradients = sum(captured.program.value_bytes(v) for v in captured.gradient_values)
        return room - outputs - gradients - int(SPARE * region.settings.budget_bytes)

    def _refuse_budget(self, goal: int | None, found: planning.Found) -> None:
        budget = self.region.settings.budget_bytes
        smallest = budget - goal + found.smallest_budget_bytes
        self._refuse(f"inside {_core.format_bytes(budget)} no plan fits beside the copies of inputs, outputs and "
                     f"gradients; a budget of about {_core.format_bytes(smallest)} would do", smallest)

    def _capture(self, inputs: Sequence[Any], fixed: list[int], copied: list[int], static: list[torch.Tensor],
                 seeds: list[torch.Tensor | None], found: planning.Found) -> Recorded:
        region = self.region
        executor = _torch.Executor(region.captured.program, found.plan.to_bytes())
        arguments = list(inputs)
        for i, tensor in zip(copied, static):
            arguments[i] = tensor
        own_bytes = found.simulation.peak_bytes - region.captured.resident_bytes
        recorded: list[Recorded] = []

        def work() -> None:
            pool = torch.cuda.graph_pool_handle()
            stream = _recording_stream(region.device)
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize(region.device)
            # cuBLAS keeps a workspace for every stream, and lets go of it when any graph of that stream does:
            # it has to lie in the pool that uses it.
            before = _torch.allocated_bytes(region.device)
            torch._C._cuda_clearCublasWorkspaces()
            cleared = before - _torch.allocated_bytes(region.device)
            torch.cuda.empty_cache()
            with torch.cuda.stream(stream), _recording(forward, pool):
                # One block for all: it is split as the step goes on, and leaves few gaps.
                torch.empty(max(own_bytes, 1), dtype=torch.uint8, device=region.device)
                outputs, handle = executor.forward(arguments)
            with torch.cuda.stream(stream), _recording(backward, pool):
                gradients = _torch.backward(handle, seeds)
            torch._C._cuda_clearCublasWorkspaces()
            before = _torch.allocated_bytes(region.device)
            _multiply(region.device)
            torch.cuda.synchronize(region.device)
            back = _torch.allocated_bytes(region.device) - before
            self._cleared_bytes = max(self._cleared_bytes, cleared - back)
            recorded.append(Recorded(
                region.device, forward, backward, executor, found, fixed, _torch.addresses_of([inputs[i] for i in fixed]),
                region.captured.program.changed_inputs, [i for i in executor.watched_inputs if i in fixed], copied,
                [_once(t) for t in static], seeds, outputs, gradients, region.settings.budget_bytes,
                _bytes(outputs, region.device),
                _bytes(gradients, region.device) + region.captured.program.hand_over_bytes, *_pool_bytes(pool)))

        _torch.on_device_thread(region.device, work)
        return recorded[0]


class _recording:  # noqa: N801  reads as a verb at its place of use
    """Capture from begin to end, also when what is captured fails."""

    def __init__(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        self.graph, self.pool = graph, pool

    def __enter__(self) -> None:
        self.graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.graph.capture_end()
        except RuntimeError:
            if kind is None:
                raise  # else the first error tells more


class Pace:
    """How long steps without graphs take to issue, and to run, by the latest few that began on an
    idle device: else issuing waits for the steps before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.shares: collections.deque[float] = collections.deque(maxlen=3)
        self._begin: Any = None
        self._issue_seconds = 0.0
        self._waiting: collections.deque[tuple[Any, Any, float]] = collections.deque(maxlen=8)
        self._stopped = False

    def stop(self) -> None:
        self._stopped, self._begin = True, None
        self._waiting.clear()

    def begin_step(self) -> bool:
        stream = torch.cuda.current_stream(self.device)
        self._begin = None
        if self._stopped or not stream.query():
            return False
        self._begin = stream.record_event(torch.cuda.Event(enable_timing=True))
        return True

    def issued(self, seconds: float) -> None:
        self._issue_seconds = seconds

    def end_step(self, seconds: float) -> None:
        if self._begin is not None:
            end = torch.cuda.current_stream(self.device).record_event(torch.cuda.Event(enable_timing=True))
            self._waiting.append((self._begin, end, self._issue_seconds + seconds))
            self._begin = None

    def is_launch_bound(self) -> bool:
        self._stopped = False
        while self._waiting and self._waiting[0][1].query():
            begin, end, issue = self._waiting.popleft()
            self.shares.append(1e3 * issue / max(begin.elapsed_time(end), 1e-3))
        return len(self.shares) >= 2 and sorted(self.shares)[len(self.shares) // 2] >= LAUNCH_BOUND


_all: weakref.WeakSet[CudaGraphs] = weakref.WeakSet()


def hidden_bytes(device: torch.device) -> int:
    """Of all pools on a device: in use at every replay, and counted by no allocator."""
    return sum(graphs.hidden_bytes for graphs in _all if graphs.region.device == device)


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """What of an expanded tensor there is in memory."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    return _streams.setdefault(device, torch.cuda.Stream(device))


def _multiply(device: torch.device) -> None:
    """Gives cuBLAS its workspace on the current stream back, outside of any step."""
    x = torch.ones(64, 64, device=device)
    torch.addmm(x[0], x, x.mm(x))


def _bytes(tensors: Sequence[torch.Tensor | None], device: torch.device) -> int:
    return sum(_torch.granted_bytes(device, t.numel() * t.element_size()) for t in tensors if t is not None)


def _pool_bytes(pool: Any) -> tuple[int, int]:
    segments = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(pool)]
    return sum(s["total_size"] for s in segments), sum(s["allocated_size"] for s in segments)
