"""Models whose parts are captured and planned one by one, inside one budget: sharded ones, and those that name their parts.

fully_shard (FSDP2) gathers the parameters of a unit in hooks around its forward, and lets go of them in hooks behind it. Each
unit that contains no other one is a region: its forward is captured as one step, inside of these hooks. Everything between
regions runs as it is. Regions of one class are traced once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import fx
from torch.utils._pytree import tree_leaves

from ..collector import resting_collector
from ..errors import GraphBreak, Unsupported, first_line
from ..trace.dynamo import own_errors, own_frame
from ..trace.eager_way import Trace, goes_as_eager
from ..trace.fused.lowered import FIRST_FORM
from ..trace.joint_graph import EAGER, JointGraph, Run
from ..trace.saved_traces import SavedStep, find_or_trace
from .divided_plan import DividedPlan
from .outputs import without_zeros
from .ranks import Ranks
from .region_steps import Divider
from .session import StepSession, backward, future_bytes
from .settings import Settings
from .units import all_units

log = logging.getLogger("reprise")


def compile_in_regions(model: torch.nn.Module, regions: Sequence[torch.nn.Module], settings: Settings) -> None:
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    check_regions(regions, names)
    runner = RegionsRunner(model._call_impl, len(regions), _group_of(model), settings)
    runner.divider.reserve_bytes += _late_bytes(model)
    for module in regions:
        install(runner, module, names[id(module)])
    model.__dict__["plan"] = runner.plan
    model._compiled_call_impl = runner


def install(runner: RegionsRunner, module: torch.nn.Module, name: str) -> None:
    module.__dict__["forward"] = Region(runner, module, name)
    runner.plan.undo.append(partial(_give_back, weakref.ref(module)))


def check_regions(regions: Sequence[torch.nn.Module], names: dict[int, str]) -> None:
    for module in regions:
        if not isinstance(module, torch.nn.Module) or id(module) not in names:
            raise ValueError(f"regions= takes modules of the model, not {type(module).__name__}")
        inner = next((other for other in regions if other is not module and any(m is other for m in module.modules())), None)
        if inner is not None:
            raise ValueError(f"{names[id(inner)]} is inside of {names[id(module)]}: regions cannot contain one another")
        if "forward" in module.__dict__:
            raise Unsupported(f"{names[id(module)]} has a forward of its own, set on the module itself, that another library "
                              "put there: compile the model before that")


def _give_back(module: weakref.ref[torch.nn.Module]) -> None:
    alive = module()
    if alive is not None:
        alive.__dict__.pop("forward", None)


class RegionsRunner:
    """What is called instead of a model that has regions."""

    def __init__(self, plain: Callable[..., Any], most_open: int, group: dist.ProcessGroup | None, settings: Settings) -> None:
        """plain: what is called instead. most_open: calls of regions whose backward has not come yet, at most. group: the
        processes that train together."""
        self.settings = settings
        self._plain = plain
        options = settings.options
        futures = functools.cache(partial(future_bytes, settings))
        self.divider = Divider(most_open, options.budget_bytes, options.reserve_bytes, options.planner,
                               options.planning_seconds, lambda device: futures(device)(), settings.preparation)
        # The divider has the budget. Sessions run the plans that it gives them, and it watches their steps.
        options.budget_bytes, options.reserve_bytes, options.watch = None, 0, False
        self.plan = DividedPlan(settings, self.divider)
        self.traced: dict[Any, Callable[..., Any]] = {}
        self.trace = Trace()
        self.ranks: Ranks | None = None
        if group is not None:
            self.ranks = Ranks(group)
            self.divider.others_free = True
        self.begin_with: Callable[[], None] | None = None  # None: a step begins when a region is called
        self.may_ask_always = True  # all processes call as many regions
        self._key: Any = None  # of a step that has begun and has called no region yet
        self.asks_always = False  # all processes ask one another after every region of this step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or goes_as_eager():
            return self._plain(*args, **kwargs)
        self._key = tuple((tuple(leaf.shape), leaf.dtype) for leaf in tree_leaves((args, kwargs))
                          if isinstance(leaf, torch.Tensor))
        self.divider.is_going_on = True
        try:
            if self.begin_with is not None:
                self.begin_with()
                self.begin()
            with contextlib.nullcontext() if self.ranks is None else self.ranks.absence_named():
                return self._plain(*args, **kwargs)
        finally:
            self._key = None
            self.divider.pause()

    def begin(self) -> None:
        """Before the first region of a step."""
        if self._key is None:
            return
        key, self._key = self._key, None
        error: Exception | None = None
        is_new = False
        try:
            is_new = self.divider.begin(key)
        except Exception as raised:
            error = raised
        if self.ranks is not None:
            some_new = self.ranks.agree(error, [0 if is_new else 1]) == [0]
            self.asks_always = some_new and self.may_ask_always
        elif error is not None:
            raise error

    def told_to_all(self) -> contextlib.AbstractContextManager[None]:
        """While things are found out, an error in here is raised in all processes."""
        return contextlib.nullcontext() if self.ranks is None or not self.asks_always else self.ranks.told_to_all()

    def compiled(self, module: torch.nn.Module) -> Callable[..., Any]:
        kind = type(module)
        if kind not in self.traced:
            def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
                return kind.forward(module, *args, **kwargs)

            self.traced[kind] = torch.compile(own_frame(call), backend=partial(_compile, weakref.ref(self)), fullgraph=True,
                                              dynamic=False)
        return self.traced[kind]


def _compile(model: weakref.ref[RegionsRunner], gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    alive = model()
    assert alive is not None  # it is being called
    settings = alive.settings

    def runs_of(joint: JointGraph | SavedStep) -> tuple[Run, Run]:
        name = settings.name
        session = StepSession(partial(joint.capture, name, form=FIRST_FORM), settings, joint.device, name)
        alive.plan.sessions.append(session)
        step = _RegionStep(session, alive)
        return step.forward, step.backward

    return find_or_trace(gm, inputs, runs_of, settings.preparation, EAGER, settings.name)


class _RegionStep:
    """What torch.compile calls."""

    def __init__(self, session: StepSession, model: RegionsRunner) -> None:
        self.session, self.divider = session, model.divider
        self._model = weakref.ref(model)  # which has what torch.compile calls

    def forward(self, args: list[Any]) -> list[Any]:
        outputs: list[Any] = []

        def run() -> torch.Tensor:
            outputs.extend(self.session.forward(args))
            handle: torch.Tensor = outputs[-1]
            return handle

        self.divider.forward(self.session, run)
        return outputs

    def backward(self, args: list[Any]) -> list[Any]:
        model = self._model()
        with contextlib.nullcontext() if model is None else model.told_to_all():
            step = self.divider.begin_backward(self.session, args[0])
        gradients = backward(args, self.session.settings)
        self.divider.end_backward(step, self.session)
        return gradients


class Region:
    """What a region calls instead of its forward."""

    def __init__(self, model: RegionsRunner, module: torch.nn.Module, name: str) -> None:
        self.model, self.name = model, name
        self.module = weakref.ref(module)
        self.is_captured = True
        self.has_run = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, model = self.module(), self.model
        assert module is not None  # it is being called
        if not torch.is_grad_enabled() or goes_as_eager() or not model.divider.is_going_on:
            return type(module).forward(module, *args, **kwargs)
        model.begin()
        with model.told_to_all():
            return self._planned(module, *args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _planned(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not self.is_captured:
            return type(module).forward(module, *args, **kwargs)
        self.model.divider.region = self.name
        try:
            with own_errors(), contextlib.nullcontext() if self.has_run else self._preparing():
                outputs = self.model.trace(self.model.compiled(module), module, *args, **kwargs)
        except (GraphBreak, Unsupported) as error:
            self.is_captured = False
            log.warning("%s cannot be captured, and runs without a plan: %s", self.name, first_line(error))
            return type(module).forward(module, *args, **kwargs)
        self.has_run = True
        without_zeros(outputs)
        return outputs

    @contextlib.contextmanager
    def _preparing(self) -> Iterator[None]:
        with resting_collector(), self.model.settings.preparation.phase("tracing"):
            yield


def _late_bytes(model: torch.nn.Module) -> int:
    """On the CPU, threads of gloo hold a copy of what was reduced until some time after the reduction is over. If there are
    several units, those of two may be there while another one runs."""
    seen: set[int] = set()
    sizes = []
    for unit in reversed(all_units(model)):
        own = [p for p in unit.parameters() if p.device.type == "cpu" and id(p) not in seen]
        seen.update(map(id, own))
        sizes.append(sum(p.numel() * p.element_size() for p in own))
    return 2 * max(sizes) if len(sizes) > 1 else 0


def _group_of(model: torch.nn.Module) -> dist.ProcessGroup | None:
    """The processes among which the parameters are divided."""
    mesh = next((parameter.device_mesh for parameter in model.parameters() if hasattr(parameter, "device_mesh")), None)
    if mesh is None:
        return None
    group: dist.ProcessGroup = (mesh if mesh.ndim == 1 else mesh._flatten()).get_group()
    return group
