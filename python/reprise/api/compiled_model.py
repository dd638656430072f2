"""reprise.compile: a model that trains inside a byte budget."""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from ..collector import resting_collector
from ..errors import GraphBreak, Unsupported
from ..native import _torch
from ..trace.dynamo import own_errors
from ..trace.eager_way import goes_as_eager, install_hooks
from ..trace.gathers import is_sharded
from ..trace.joint_graph import EAGER
from .data_parallel import DataParallel, one_graph
from .deferred_call import Deferring
from .divided_plan import DividedPlan
from .model_plan import ModelPlan
from .online import PLANNING_SECONDS, online, why_not
from .outputs import without_zeros
from .pipeline import compile_schedule, is_schedule, modules_of
from .regions import compile_in_regions
from .settings import CLOSE, WITH_DISTRIBUTED, Settings, settings_from
from .shapes import Shapes
from .tensor_parallel import check_optimizer, tensor_parallel
from .units import innermost_units
from .with_loss import WithLoss

log = logging.getLogger("reprise")

AUTO, GRAPH, ONLINE = "auto", "graph", "online"


def compile(model: torch.nn.Module, budget: str | int | None = None, *,
            optimizer: torch.optim.Optimizer | None = None, reserve: str | int = 0, host_budget: str | int = 0,
            park_optimizer: bool = False, planner: str = "auto", planning_seconds: float = 10.0,
            waiting_seconds: float | None = None, profile: str = "measure",
            cuda_graphs: bool | str = "auto", arena: bool | str = False, slices: bool | str = True,
            engine: str = "eager", capture: str = "auto", loss: Callable[..., Any] | None = None,
            defer_logits: bool = False, regions: Sequence[torch.nn.Module] | None = None) -> torch.nn.Module:
    """Makes `model` train inside `budget` bytes, with the least recomputation found, and returns it.

    The model is changed in place: same class, same parameters, same `state_dict` keys and hooks. It may also be a schedule of
    torch.distributed.pipelining, whose stages in this process then share the budget.
    Calls without gradients run as before. The first call captures, profiles and plans.

    budget: highest number of bytes allocated on the model's device from the call of the model to
        the return of backward, parameters, gradients, optimizer state and the caller's tensors
        included: "6GiB", or a number. None: no recomputation.
    optimizer: counts the state it will create at its first step before it exists.
    reserve: bytes to leave free for anything else that will be allocated later.
    host_budget: on an accelerator, memory of the host that steps may store values in until backward reads
        them, where that is cheaper than computing them again. It is pinned.
    park_optimizer: with a host_budget, let state of `optimizer` wait there, too, until backward has ended, if the budget
        needs it.
    planner: one of reprise.planner_names(); "auto" never loses to another.
    planning_seconds: how long planning may take, per shape and situation.
    waiting_seconds: how long a step waits for it; after that, it runs with the best plan so far, and the search goes on
        beside the steps. The default is half a second.
    profile: "measure" the time of each operator, or estimate it by a "roofline".
    cuda_graphs: on CUDA, run forward and backward as CUDA graphs: True, False, or "auto" where issuing
        the operators takes about as long as running them.
    arena: serve steps from one block that is kept between them, at addresses that are planned, so that what is
        reserved is what was planned: True, False, or "auto": on the CPU where the plan fits that way.
    slices: where the budget cannot be kept otherwise, or costs much recomputation, run a chain of calls with large
        results (such as the loss over many words) slice by slice, as long as the bits stay those of eager. "close": also
        where slices round differently, and add gradients of weights up over them, which takes less memory.
    engine: "eager" runs the operators that eager runs and gives its bits; "fused" runs kernels that Inductor
        generates, which are faster and round differently.
    capture: "graph" captures the step and plans it, and refuses a model that is not one graph; "online" runs it as it
        is, call by call, and computes results again when memory is short (see reprise.online); "auto" captures where that
        is possible, and says so in the log where it is not.
    loss: a function of what the model returns and of targets. Then it is part of the step: with gradients enabled,
        `model(inputs, targets)` returns the loss, and what the model itself returns need not be there all at once.
    defer_logits: for loops that compute the loss themselves. With gradients enabled the model returns logits that stand for
        themselves and runs when `cross_entropy` is called with them, together with it, as with `loss`. Any other use
        before that makes them whole.
    regions: parts of the model that are captured and planned one by one, inside the one budget; the rest runs as it is. For
        models that are not one graph, or take long to trace: parts of one class are traced once. Units of fully_shard
        (FSDP2) are regions by themselves.

    Raises InfeasibleBudget at the first call where no plan fits. Nothing has run then; with regions, parts of the step may have.
    """
    schedule = model if is_schedule(model) else None
    if schedule is not None:
        model = modules_of(schedule)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"reprise.compile takes a torch.nn.Module, not {type(model).__name__}")
    refuse_wrappers(model)
    called = called_module(model)
    settings = settings_from(budget, reserve, host_budget, park_optimizer=park_optimizer, planner=planner,
                             planning_seconds=planning_seconds, waiting_seconds=waiting_seconds, profile=profile,
                             cuda_graphs=cuda_graphs, arena=arena, slices=slices, engine=engine, optimizer=optimizer,
                             model=called)
    check_capture(capture, engine, model)
    if defer_logits and loss is not None:
        raise ValueError("defer_logits=True is for a loss that is computed outside of the step, and loss= makes it part of "
                         "the step: give one of them")
    parts = innermost_units(model) if regions is None else list(regions)
    if schedule is not None or parts:
        _refuse_with_regions(model, capture, loss is not None, defer_logits, settings)
    else:
        settings.together = tensor_parallel(called)
    if settings.together is not None:
        refused_options(WITH_DISTRIBUTED, settings, capture, defer_logits,
                        {"host_budget": settings.options.host_budget_bytes > 0, "cuda_graphs=True": cuda_graphs is True,
                         "DistributedDataParallel": model is not called})
        check_optimizer(optimizer, called)
        settings.set_slices(False)  # All ranks would have to agree on those, too.
    _torch.install_meter()
    if schedule is not None:
        restore(schedule)
        compile_schedule(schedule, settings)
        schedule.__dict__["plan"].hold = model  # the settings hold it weakly
        return schedule
    restore(model)
    if parts:
        compile_in_regions(model, parts, settings)
        weakref.finalize(model, model.__dict__["plan"].release).atexit = False
        return model
    runner = _Runner(called, settings, capture, None if loss is None else WithLoss(called._call_impl, loss), defer_logits)
    if isinstance(model, DistributedDataParallel):
        runner.join(model, is_older=True)
        model.__dict__["plan"] = runner.plan
    called.__dict__["plan"] = runner.plan
    called._compiled_call_impl = runner
    weakref.finalize(called, runner.plan.release).atexit = False
    return model


def restore(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes reprise.compile."""
    if is_schedule(model):
        model.__dict__.pop("step", None)
        if isinstance(plan := model.__dict__.pop("plan", None), DividedPlan):
            plan.release()
        return model
    called = called_module(model)
    called._compiled_call_impl = None
    plan = called.__dict__.pop("plan", None)
    model.__dict__.pop("plan", None)
    if isinstance(plan, (ModelPlan, DividedPlan)):
        plan.release()
    return model


def _refuse_with_regions(model: torch.nn.Module, capture: str, has_loss: bool, defer_logits: bool,
                         settings: Settings) -> None:
    options = settings.options
    refused_options("for a model that is planned in regions, such as one of fully_shard", settings, capture, defer_logits,
                    {"loss=": has_loss, "host_budget=": options.host_budget_bytes > 0, 'slices="close"': options.slices == CLOSE,
                     "cuda_graphs=True": options.cuda_graphs is True, "reprise.shard": is_sharded(model),
                     "DistributedDataParallel": isinstance(model, DistributedDataParallel)})
    settings.set_slices(False)


def called_module(model: torch.nn.Module) -> torch.nn.Module:
    """The module whose calls are steps: DistributedDataParallel calls another one."""
    return model.module if isinstance(model, DistributedDataParallel) else model


_NO_SECOND_COMPILER = (
    "this model runs a plan of reprise.compile, which another compiler would replace by code outside of the budget. Do not "
    "pass the model to torch.compile, or give it back with reprise.restore first.")


class _Runner:
    """What a compiled model calls instead of its forward."""

    def __init__(self, model: torch.nn.Module, settings: Settings, capture: str, with_loss: WithLoss | None,
                 defer_logits: bool) -> None:
        self.capture = capture
        self.plan = ModelPlan(settings)
        self.plain: Callable[..., Any] = model._call_impl
        self.with_loss = with_loss
        self.step: Callable[..., Any] = self.plain if with_loss is None else with_loss.call
        if (optimizer := settings.stepper) is not None:
            self.plan.hooks = _watch_optimizer(optimizer, settings, self.plan)
        self.plan.hooks.append(_watch_for_training_without(self.plan))

        self.settings = settings
        self.deferring = Deferring(self.step, settings, self.plan) if defer_logits else None
        self.shapes = self.deferring or Shapes(self.step, settings, self.plan)
        self.parallel: DataParallel | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.deferring is not None:
            self.deferring.settle()
        if not torch.is_grad_enabled() or goes_as_eager():
            return self.plain(*args, **kwargs)
        ddp = DistributedDataParallel._get_active_ddp_module()
        if ddp is None:
            self.settings.parallel = None
            for accumulation in self.settings.accumulations:
                accumulation.begin_call()
            with contextlib.nullcontext() if self.settings.together is None else self.settings.together.call():
                return self.trains(*args, **kwargs)
        if self.parallel is None or not self.parallel.wraps(ddp):
            self.join(ddp, is_older=False)
        self.settings.parallel = self.parallel
        return self.trains_in_parallel(*args, **kwargs)

    def join(self, ddp: DistributedDataParallel, is_older: bool) -> None:
        """From now on the model is called by this wrapper."""
        refused_options("inside DistributedDataParallel", self.settings, self.capture, self.deferring is not None,
                        {"a model with distributed parameters (DTensor)": self.settings.together is not None})
        self.parallel = DataParallel(ddp, is_older)

    def trains_in_parallel(self, *args: Any, **kwargs: Any) -> Any:
        """The same in all processes, or an error in all of them."""
        assert self.parallel is not None
        with self.parallel.ranks.told_to_all(), one_graph():
            return self.trains(*args, **kwargs)

    def trains(self, *args: Any, **kwargs: Any) -> Any:
        if self.with_loss is not None:
            self.with_loss.check(args)
        if self.capture == ONLINE:
            return self.as_it_is(*args, **kwargs)
        try:
            return self.captured(*args, **kwargs)
        except (GraphBreak, Unsupported) as error:
            reason = self.why_not_online()
            if reason is not None:
                raise type(error)(f"{error}\n{reason}") from error
            self.capture = ONLINE
            log.warning("%s cannot be captured and runs in the online mode from now on, which recomputes more; "
                        'capture="graph" refuses this instead. The reason: %s', self.settings.name, _in_short(error))
        return self.as_it_is(*args, **kwargs)

    def captured(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.planned(*args, **kwargs)
        except GraphBreak as error:
            model = self.settings.owner
            if model is None or not install_hooks(model, str(error)):
                raise
        return self.planned(*args, **kwargs)

    def why_not_online(self) -> str | None:
        """Why a model that cannot be captured is refused; None: it runs in the online mode."""
        if self.capture == GRAPH:
            return 'capture="auto" and capture="online" run such models as they are, inside the budget.'
        if self.settings.parallel is not None:
            return "Inside DistributedDataParallel, models have to be captured."
        if self.settings.together is not None:
            return "Models with distributed parameters (DTensor) have to be captured."
        if self.settings.engine != EAGER:
            return 'With engine="eager" it could run as it is, inside the budget.'
        return None if self.settings.owner is None else why_not(self.settings.owner)

    @torch.compiler.disable(reason=_NO_SECOND_COMPILER)  # type: ignore[untyped-decorator]
    def as_it_is(self, *args: Any, **kwargs: Any) -> Any:
        options = self.settings.options
        if options.budget_bytes is not None:
            limit = options.budget_bytes - options.reserve_bytes
            if self.plan.online is None or not self.plan.online.active:
                # Steps wait for this planning, so that it does not get all the time that a captured step may have.
                seconds = min(options.planning_seconds, PLANNING_SECONDS)
                inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
                self.plan.online = online(limit, *self.settings.tensors(), *inputs, planning_seconds=seconds).__enter__()
            elif self.plan.online.budget_bytes != limit:
                self.plan.online.set_budget(limit)
        return self.step(*args, **kwargs)

    @torch.compiler.disable(reason=_NO_SECOND_COMPILER)  # type: ignore[untyped-decorator]
    def planned(self, *args: Any, **kwargs: Any) -> Any:
        with own_errors(), contextlib.nullcontext() if self.plan.captured else self.preparing():
            outputs = self.shapes(args, kwargs)
        if self.deferring is None:
            without_zeros(outputs)
        return outputs

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        with resting_collector(), self.settings.preparation.phase("tracing"):
            yield


def _watch_optimizer(optimizer: torch.optim.Optimizer, settings: Settings, plan: ModelPlan) -> list[RemovableHandle]:
    """Brings state that waits in the host's memory back before the optimizer reads it, and notes the peak of optimizer.step(),
    which no plan can lower. On CUDA of the first few: the allocator's peak is the user's, too. Returns what removes the hooks."""
    begin: list[int] = []
    steps = itertools.count()

    def bring_back(*_: Any) -> None:
        settings.options.bring_back_state()

    def before(*_: Any) -> None:
        bring_back()
        begin.clear()
        if plan.ready and (plan.session.device.type == "cpu" or next(steps) < _torch.Session.measured_steps):
            device = plan.session.device
            _torch.reset_peak(device)
            begin.append(plan.session.runtime.total_bytes - _torch.allocated_bytes(device))

    def after(*_: Any) -> None:
        if begin:
            settings.optimizer_peak_bytes = begin[0] + _torch.peak_bytes(plan.session.device)

    return [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after),
            optimizer.register_state_dict_pre_hook(bring_back), optimizer.register_load_state_dict_pre_hook(bring_back)]


def _watch_for_training_without(plan: ModelPlan) -> RemovableHandle:
    """Tells, once, of a model whose gradients did not come from its plan. Returns what removes the hook."""
    told: list[bool] = []

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        model = plan.settings.owner
        if told or plan.ready or plan.online is not None or model is None:
            return
        trained = {p for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        if not trained.isdisjoint(model.parameters()):
            told.append(True)
            log.warning("%s is trained outside of its budget: it has gradients, but was not called itself. %s",
                        type(model).__name__, _HOW_TO_CALL)

    return register_optimizer_step_pre_hook(before)


def _in_short(error: GraphBreak | Unsupported) -> str:
    """What torch.compile says about a graph break, and the line of the user's code, out of many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if line.startswith('File "')]
    where = " ".join(lines[places[-1]:places[-1] + 2]) if places else ""
    reason = lines[0].partition(" Change the line below")[0] if len(lines) == 1 or places[:1] == [1] else lines[1]
    return f"{reason} {where}".strip()


def check_capture(capture: str, engine: str, model: torch.nn.Module) -> None:
    if capture not in (AUTO, GRAPH, ONLINE):
        raise ValueError(f"capture={capture!r}: choose {AUTO!r}, {GRAPH!r} or {ONLINE!r}")
    if capture != ONLINE:
        return
    if engine != EAGER:
        raise ValueError(f"engine={engine!r}: the online mode runs the operators of eager")
    if (reason := why_not(model)) is not None:
        raise Unsupported(reason)


def refused_options(where: str, settings: Settings, capture: str, defer_logits: bool, others: dict[str, bool]) -> None:
    """Raises Unsupported for what does not work in several processes, and turns off what would have been tried by itself."""
    options = settings.options
    refused = {"defer_logits=True": defer_logits, "arena=True": options.arena is True,
               'capture="online"': capture == ONLINE, 'engine="fused"': settings.engine != EAGER, **others}
    for name, is_asked_for in refused.items():
        if is_asked_for:
            raise Unsupported(f"{name} is not supported {where}: leave it out")
    if options.arena == AUTO:
        settings.set_arena(False)
    if options.cuda_graphs == AUTO:
        settings.set_cuda_graphs(False)  # As a CUDA graph, backward has no gradient to pass on before its end.


_HOW_TO_CALL = ("Write model(...) and not model.forward(...), and compile the module that is called: in Lightning the one that "
                "training_step calls.")

_NO_WRAPPERS = (
    "FullyShardedDataParallel (FSDP1), DataParallel, and DistributedDataParallel inside another module are not supported: they "
    "hold buffers that no plan knows of. Shard the model with fully_shard (FSDP2), compile the model in "
    "DistributedDataParallel itself, or compile the parts that are not wrapped.")


def refuse_wrappers(model: torch.nn.Module) -> None:
    for module in called_module(model).modules():
        names = {base.__name__ for base in type(module).__mro__}
        if names & {"DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"}:
            raise Unsupported(_NO_WRAPPERS)
