"""How a model is called with inputs of several shapes.

The first shape is captured as it is. When another shape of the same kind comes, the step is traced once more, with
symbols in place of the sizes that differ, and compared with the capture of the first shape, number by number. From
then on it is a family: a further shape needs no tracing, no profile and no search. Shapes for which that does not hold
are captured one by one.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from ..collector import resting_collector
from ..errors import RepriseError, Unsupported, first_line
from ..native import _torch
from ..trace.any_size import TRACING, AnySize, Dim, NoFamily, varying
from ..trace.captured import Captured as _Made
from ..trace.dynamo import own_errors, own_frame
from ..trace.eager_way import Trace, forget
from ..trace.joint_graph import EAGER, JointGraph, Run, trace
from .backend import compile_graph
from .family_step import FamilyStep
from .model_plan import ModelPlan
from .session import StepSession
from .settings import Settings

log = logging.getLogger("reprise")

Sizes = tuple[tuple[int, ...], ...]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]

MAX_ALONE = 4  # shapes of one kind that are tried in vain before no more are tried


class OtherForm(RepriseError):
    """The step has another form at this size than at those that were captured."""


@dataclass
class Captured:
    """A shape that was captured as it is."""

    session: StepSession
    inputs: Inputs  # without memory
    shared: _torch.SizeFamily | None = None

    def share(self) -> _torch.SizeFamily:
        if self.shared is None:
            self.shared = self.session.runtime.make_family()
        return self.shared


@dataclass
class Kind:
    """Inputs that are alike in everything but their sizes."""

    first: Sizes
    captured: dict[Sizes, Captured | None] = field(default_factory=dict)  # None: nothing of it is trained
    varying: set[Dim] = field(default_factory=set)
    members: set[Sizes] = field(default_factory=set)  # of a family; some may have been forgotten there
    alone: int = 0  # shapes that were tried in vain
    is_refused: bool = False  # there is no family


class Shapes:
    """What a compiled model calls."""

    def __init__(self, plain: Callable[..., Any], settings: Settings, plan: ModelPlan) -> None:
        self.settings, self.plan = settings, plan
        self.kinds: dict[Any, Kind] = {}
        self.as_is = torch.compile(own_frame(plain), backend=_backend(self, Shapes._compile_as_is), fullgraph=True,
                                   dynamic=False)
        self.any_size = torch.compile(own_frame(plain), backend=_backend(self, Shapes._compile_for_any_size), fullgraph=True,
                                      dynamic=None)
        self.traces = Trace(), Trace(**TRACING)
        self.kind: Kind | None = None  # of the call that is going on
        self.has_begun = False  # the step of that call, so that its errors are not those of tracing

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.settings.engine != EAGER or self.settings.together is not None:
            return self.traces[0](self.as_is, *args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        sizes = tuple(tuple(tensor.shape) for tensor in tensors)
        kind = self.kinds.setdefault(_kind_of(leaves, kwargs, self.settings), Kind(sizes))
        if kind.is_refused or sizes == kind.first or sizes in kind.captured:
            return self._one_by_one(kind, sizes, args, kwargs)
        return self._in_family(kind, sizes, tensors, args, kwargs)

    def _one_by_one(self, kind: Kind, sizes: Sizes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if sizes in kind.captured:
            return self.traces[0](self.as_is, *args, **kwargs)
        before = self.plan.latest_call
        outputs = self.traces[0](self.as_is, *args, **kwargs)
        if self.plan.latest_call > before:
            kind.captured[sizes] = Captured(self.plan.session, tree_map_only(Tensor, _without_memory, (args, kwargs)))
        else:
            kind.captured[sizes] = None
        return outputs

    def _in_family(self, kind: Kind, sizes: Sizes, tensors: list[Tensor], args: tuple[Any, ...],
                   kwargs: dict[str, Any]) -> Any:
        is_known = sizes in kind.members
        self.kind, self.has_begun = kind, False
        handled = sys.exc_info()[1]
        try:
            with own_errors(), contextlib.nullcontext() if is_known else self._getting_ready(kind, sizes, tensors):
                outputs = self.traces[1](self.any_size, *args, **kwargs)
        except Exception as error:
            if self.has_begun:
                raise
            if not is_known:
                self._refuse(kind, error)
            forget(error, handled)
        else:
            kind.members.add(sizes)
            return outputs
        finally:
            self.kind = None
        if not is_known:
            return self._one_by_one(kind, sizes, args, kwargs)
        kind.members.discard(sizes)  # the model has changed, and is traced again
        return self._in_family(kind, sizes, tensors, args, kwargs)

    @contextlib.contextmanager
    def _getting_ready(self, kind: Kind, sizes: Sizes, tensors: list[Tensor]) -> Iterator[None]:
        """For a shape that is new, and for which the step may have to be traced."""
        kind.varying |= {(i, d) for i, (here, there) in enumerate(zip(sizes, kind.first, strict=True))
                         for d, (size, first) in enumerate(zip(here, there, strict=True)) if size != first}
        if not kind.members and (first_captured := kind.captured.get(kind.first)) is not None:
            first_captured.share()  # its search for plans goes on while the step is traced
        with contextlib.nullcontext() if kind.members else resting_collector(), self.settings.preparation.phase("tracing"), \
                varying(tensors, kind.varying):
            yield

    def _refuse(self, kind: Kind, error: Exception) -> None:
        """This shape is captured by itself; and all that follow, if there is no hope for a family."""
        kind.alone += 1
        is_hopeless = kind.alone >= MAX_ALONE or not isinstance(error, (OtherForm, Unsupported))
        kind.is_refused = is_hopeless and not kind.members
        then = "every shape is" if kind.is_refused else "this shape is"
        cause = getattr(error, "inner_exception", error)  # torch.compile wraps what it cannot explain
        log.info("%s: %s captured by itself, not as a size of a step that is known: %s", self.settings.name, then,
                 first_line(cause))

    # -- What torch.compile calls.

    def _compile_as_is(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(gm, inputs, self.settings, self.plan.add)

    def _compile_for_any_size(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.kind is not None and self.kind.alone >= MAX_ALONE:
            raise OtherForm("too many shapes of this kind were tried in vain")

        def runs_of(joint: JointGraph) -> tuple[Run, Run]:
            traced = AnySize(gm, joint, self.settings.name)
            with _disable_current_modes():
                step = self._family_of(traced, joint.device)
            return step.forward, step.backward

        return trace(gm, inputs, runs_of, self.settings.preparation)

    def _family_of(self, traced: AnySize, device: torch.device) -> FamilyStep:
        kind = self.kind
        assert kind is not None  # who else would call what is compiled
        layouts = _torch.CostBook(device).layouts
        differences = []
        for captured in reversed(kind.captured.values()):
            symbols = None if captured is None else traced.symbols_at(*captured.inputs)
            if captured is None or symbols is None:
                continue
            family = traced.family(layouts, symbols)
            difference = family.at(symbols).difference(captured.session.runtime.program)
            if difference is None:
                return self._family_step(traced, family, captured.share(), device)
            differences.append(difference)
        if differences:
            raise NoFamily(f"traced for any size it is another step: {differences[0]}")
        raise OtherForm("it has another form at this size")

    def _family_step(self, traced: AnySize, family: _torch.ProgramFamily, shared: _torch.SizeFamily,
                     device: torch.device) -> FamilyStep:
        def session_of(program: _torch.Program) -> StepSession:
            return StepSession(lambda _: _Made(program, {}), self.settings, device, self.settings.name, family=shared)

        return FamilyStep(traced, family, shared, session_of, self.plan, self._begin)

    def _begin(self) -> None:
        self.has_begun = True


def _backend(shapes: Shapes, compiler: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile keeps every backend for good; the model must not live as long."""
    weak = weakref.ref(shapes)

    def backend(gm: Any, inputs: Any, **_: Any) -> Any:
        alive = weak()
        assert alive is not None  # who else would call what is compiled
        return compiler(alive, gm, inputs)

    return backend


def _kind_of(leaves: Sequence[Any], kwargs: dict[str, Any], settings: Settings) -> Any:
    """What makes inputs of several shapes alike. Whatever this leaves out, torch.compile's guards look at."""
    model = settings.owner
    described = [(leaf.dim(), leaf.dtype, leaf.device, leaf.requires_grad) if isinstance(leaf, Tensor)
                 else leaf if isinstance(leaf, (int, float, str, bool)) else type(leaf) for leaf in leaves]
    autocast = [(device, torch.get_autocast_dtype(device)) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return tuple(kwargs), model is not None and model.training, tuple(autocast), tuple(described)


def _without_memory(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
