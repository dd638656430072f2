"""A training step as a program, captured without running it.

Dynamo gives the graph of a call and the tensors it reads, AOTAutograd makes the joint graph from it, and
capture makes the program. No compiled code is made, so the model is not changed, whatever its code does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, fx
from torch._dynamo.convert_frame import compile_lock, fullgraph_capture
from torch._dynamo.eval_frame import set_enable_dynamic
from torch._dynamo.utils import get_metrics_context
from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr
from torch._guards import TracingContext, tracing
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from .. import _core
from ..errors import cannot_be_trained
from ..measuring import measuring
from ..native import _torch
from .any_size import TRACING, AnySize, Dim, varying
from .captured import Captured
from .dynamo import own_errors
from .eager_way import Trace
from .joint_graph import EAGER, JointGraph, Run, trace
from .layouts import Layouts

Made = TypeVar("Made")


@dataclass
class TracedStep:
    """A program and the graph it was made from, so that it can be made again with other layouts without tracing."""

    name: str
    joint: JointGraph
    results: list[Any]  # of the call, as fake tensors
    captured: Captured

    def capture_again(self, layouts: Layouts) -> None:
        self.captured = self.joint.capture(self.name, layouts)

    def measure(self, layouts_of: Callable[[Layouts], Layouts] = dict) -> _core.Costs:
        """Measures what every call costs on the device. Results get the device's layout: where fake tensors and the
        device disagree, the device is right.

        layouts_of: chooses, from the layouts that are known, those to capture with.
        """

        def again(layouts: Layouts) -> tuple[_torch.Program, dict[int, str]]:
            self.capture_again(layouts_of(layouts))
            return self.captured.program, self.captured.keys

        _torch.install_meter()
        with measuring():
            return _core.Costs.from_capsule(_torch.measure_step(self.captured.program, self.captured.keys, again))


def capture_step(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str,
                 layouts: Layouts | None = None, engine: str = EAGER) -> TracedStep:
    """The step of call(*args, **kwargs), and of backward from what it returns.

    layouts: layouts of results that are known to differ from those of fake tensors; by default all that were found
        on the device of the tensors.
    """

    def captured(gm: fx.GraphModule, joint: JointGraph) -> TracedStep:
        known = _torch.CostBook(joint.device).layouts if layouts is None else layouts
        return TracedStep(name, joint, _results(gm), joint.capture(name, known))

    return _made_of(captured, call, args, kwargs, name, Trace(), partial(set_enable_dynamic, False), engine)


def trace_for_any_size(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str,
                       dims: Collection[Dim]) -> AnySize:
    """The same, traced with symbols in place of the sizes in `dims`."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]

    def traced(gm: fx.GraphModule, joint: JointGraph) -> AnySize:
        return AnySize(gm, joint, name)

    return _made_of(traced, call, args, kwargs, name, Trace(**TRACING), partial(varying, tensors, dims), EAGER)


def _made_of(make: Callable[[fx.GraphModule, JointGraph], Made], call: Callable[..., Any], args: Sequence[Any],
             kwargs: Mapping[str, Any], name: str, way: Trace, sizes: Callable[[], contextlib.AbstractContextManager[Any]],
             engine: str) -> Made:
    """What `make` makes of the graph that Dynamo has and of the joint graph."""
    made: list[Made] = []

    def traced() -> None:
        # What torch.compile(fullgraph=True) would pass to its backend, or None.
        with get_metrics_context(), sizes(), _without_modes():
            found = fullgraph_capture(call, tuple(args), dict(kwargs)).backend_input
        if found is None:
            return

        def keep(joint: JointGraph) -> tuple[Run, Run]:
            made.append(make(found.graph_module, joint))
            return _never, _never

        context = TracingContext(found.fake_mode)
        context.tensor_to_context = found.tensor_to_context
        with tracing(context):
            trace(found.graph_module, found.example_inputs, keep, engine=engine)

    with own_errors(), torch.enable_grad(), compile_lock, compiling(), _disable_current_modes():
        way(traced)
    if not made:
        raise cannot_be_trained(name)
    return made[-1]  # A way that failed may have made one, too.


def _without_modes() -> contextlib.AbstractContextManager[Any]:
    """Sets modes of torch functions aside, which Dynamo before 2.12 does itself while it traces."""
    return contextlib.nullcontext() if torch.__version__ < "2.12" else torch_function_mode_stack_state_mgr


# Tells code that is traced but does not belong to the model that it is being compiled. Torch before 2.13 did not.
compiling = getattr(torch.compiler, "_compile_session_context", contextlib.nullcontext)


def _results(gm: fx.GraphModule) -> list[Any]:
    outputs = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    return [node.meta.get("example_value") if isinstance(node, fx.Node) else node for node in outputs]


def _never(_: list[Any]) -> NoReturn:
    raise AssertionError("a step that was captured alone does not run")
