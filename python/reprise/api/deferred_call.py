"""reprise.compile(model, defer_logits=True): a model runs when its loss is computed, and with it.

torch.compile traces a call of the model and does everything that the model does outside of tensors. Its graph does not
run yet: outputs are stand-ins, which hold the inputs. The loss of the logits is put behind the graph, and both become
one planned step. If a number of an output is asked for before, the graph becomes a planned step as it is.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.convert_frame import compile_lock
from torch._guards import TracingContext, tracing
from torch.utils._python_dispatch import _disable_current_modes

from ..collector import resting_collector
from ..errors import ModifiedInPlace, RepriseError
from ..trace.autocast import Autocast, autocast_now, set_autocast
from ..trace.cut_rows import CutRows
from ..trace.dynamo import own_errors, own_frame
from ..trace.eager_way import Trace
from ..trace.head import Head, Then, find_head, losses_of, one_after_the_other, outputs_of, with_loss
from ..trace.step_capture import compiling
from .backend import compile_graph
from .model_plan import ModelPlan
from .outputs import without_zeros
from .settings import Settings
from .stand_in import StandIn, without_way_back

log = logging.getLogger("reprise")


class Deferring:
    """What a compiled model calls."""

    def __init__(self, plain: Callable[..., Any], settings: Settings, plan: ModelPlan) -> None:
        self.book = _Book(settings, plan)
        self.as_is = torch.compile(own_frame(plain), backend=_backend(self.book), fullgraph=True, dynamic=False)
        self.trace = Trace()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.trace(self.as_is, *args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def settle(self) -> None:
        """Runs the call before, if it has not run yet: its effects come before those of the next."""
        if (call := self.book.latest()) is not None and call.is_pending and not call.is_given_up:
            call.real(call.logits_position, "the next call of the model, before a loss of this one")


class _Book:
    """What all calls of a model share. It outlives the model, which it does not know."""

    def __init__(self, settings: Settings, plan: ModelPlan) -> None:
        self.settings, self.plan = settings, plan
        plan.defers = True
        self.latest: Callable[[], DeferredCall | None] = lambda: None
        self.told: set[str] = set()

    def tell(self, kind: str, message: str, *args: Any) -> None:
        """A line in the log, once of each kind."""
        if kind not in self.told:
            self.told.add(kind)
            log.warning(message, self.settings.name, *args)

    def compile(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        head = find_head(gm)
        if head is None:
            self.tell("no head", "%s has no output that ends in a product and is larger than what it is made of: nothing is "
                      "gained by deferring its outputs, and defer_logits has no effect")
            return compile_graph(gm, inputs, self.settings, self.plan.add)
        return DeferredGraph(gm, inputs, head, self)


def _backend(book: _Book) -> Callable[..., Any]:
    """torch.compile keeps every backend for good; plans must not live as long."""
    weak = weakref.ref(book)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        alive = weak()
        assert alive is not None  # who else would call what is compiled
        return alive.compile(gm, inputs)

    return backend


class DeferredGraph:
    """The graph of a model's call for inputs of one shape, and the steps that were made of it."""

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], head: Head, book: _Book) -> None:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.output(graph.graph_copy(gm.graph, copies))  # torch.compile empties its own
        self.gm = fx.GraphModule(gm, graph)
        head.reads = [copies[node] for node in head.reads]
        self.head, self.book, self.inputs = head, book, list(inputs)
        context = TracingContext.get()
        assert context.fake_mode is not None  # with which torch.compile has traced
        self.fake_mode, self.contexts = context.fake_mode, context.tensor_to_context
        self.outputs = [node.meta.get("example_value") if isinstance(node, fx.Node) else node
                        for node in outputs_of(graph)]
        self.losses = losses_of(self.gm, head)
        placeholders = graph.find_nodes(op="placeholder")
        self.read_from = [placeholders.index(node) if node.op == "placeholder" else None for node in head.reads]
        self.steps: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        call = DeferredCall(self, args)
        self.book.latest = weakref.ref(call)
        return tuple(StandIn.of(call, i, like) if isinstance(like, Tensor) else like for i, like in enumerate(self.outputs))

    def plain_step(self, autocast: list[Autocast]) -> Callable[..., Any]:
        return self._step(("plain", tuple(autocast)), lambda: self.gm, [], autocast)

    def loss_step(self, calls: Sequence[Then], inputs: Sequence[Tensor], autocast: list[Autocast]) -> Callable[..., Any]:
        described = [(tuple(t.shape), t.stride(), t.dtype, t.device, t.requires_grad) for t in inputs]
        key = repr((calls, described, autocast))
        add = None if not calls else one_after_the_other(calls)
        is_of_labels = len(inputs) == 1 and inputs[0].dtype is torch.int64 and inputs[0].dim() == 1
        if is_of_labels and not any(enabled for _, _, enabled, _ in autocast):
            cut_rows = CutRows.of(self.head.logits, calls)
            add = add if cut_rows is None else cut_rows.add
        return self._step(key, lambda: with_loss(self.gm, self.head, add, len(inputs)), inputs, autocast)

    def _step(self, key: Any, graph: Callable[[], fx.GraphModule], inputs: Sequence[Tensor],
              autocast: list[Autocast]) -> Callable[..., Any]:
        if key not in self.steps:
            settings = self.book.settings
            context = TracingContext(self.fake_mode)
            context.tensor_to_context = self.contexts
            with resting_collector(), own_errors(), torch.enable_grad(), compile_lock, compiling(), \
                    _disable_current_modes(), tracing(context), set_autocast(autocast):
                fakes = [self.fake_mode.from_tensor(tensor, static_shapes=True) for tensor in inputs]
                self.steps[key] = compile_graph(graph(), [*self.inputs, *fakes], settings, self.book.plan.add)
        return self.steps[key]


class DeferredCall:
    """One call of a model, which runs once: with its loss, or as it is when something else asks for its outputs."""

    def __init__(self, graph: DeferredGraph, args: Sequence[Any]) -> None:
        self.graph, self.args = graph, list(args)
        self.device, self.logits_position = graph.head.logits.device, graph.head.position
        self.versions = [_version(tensor) for tensor in args]
        self.random = _random_state(self.device)
        self.autocast = autocast_now(self.device)
        self.is_pending, self.is_given_up = True, False
        self.results: list[Any] = []  # by output; of logits that the loss was computed without: None
        self.read: list[Tensor] = []  # from which the head makes the logits again
        self.read_versions: list[int] = []

    def has_loss(self, position: int) -> bool:
        return not self.is_pending and bool(self.read) and position == self.logits_position

    def loss(self, logits: StandIn, then: Then, inputs: list[Tensor]) -> Tensor:
        now = autocast_now(self.device)
        calls = [*logits.path(), Then(then.function, then.args, then.kwargs, () if now == self.autocast else tuple(now))]
        result: Tensor = self._run_without_logits(calls, inputs)
        return result

    def real(self, position: int, use: str) -> Any:
        if self.is_pending and position in self.graph.losses:
            self._run_without_logits([], [])
        elif self.is_pending:
            self.graph.book.tell("real", "%s: its logits are made whole, because of %s before the loss was computed from them. "
                                 "The loss is then not part of the planned step", use)
            self.results = list(self._run(self.graph.plain_step(self.autocast), []))
        if not self.has_loss(position) or self.results[position] is not None:
            return self.results[position]
        self.graph.book.tell("again", "%s: its logits are computed again without gradients, because of %s after the loss", use)
        self.results[position] = self._logits_again()
        return self.results[position]

    def _run_without_logits(self, calls: list[Then], inputs: list[Tensor]) -> Any:
        head = self.graph.head
        args = self.args
        made = list(self._run(self.graph.loss_step(calls, inputs, self.autocast), inputs))
        result = made.pop(0) if calls else None
        count = len(self.graph.outputs) - 1
        self.results = [*made[:head.position], None, *made[head.position:count]]
        kept = iter(made[count:])
        self.read = [next(kept) if number is None else args[number] for number in self.graph.read_from]
        self.read_versions = [_version(tensor) for tensor in self.read]
        return result

    def _run(self, step: Callable[..., Any], inputs: Sequence[Tensor]) -> Sequence[Any]:
        self.is_given_up = True  # if this fails, nobody runs it in the end
        if [_version(tensor) for tensor in self.args] != self.versions:
            raise ModifiedInPlace(
                "an input, a parameter or a buffer of the model was changed in place after the model was called and before "
                "its loss was computed, which is when a model with defer_logits=True runs. Change it after the loss")
        before = _random_state(self.device)
        with torch.inference_mode(False), torch.enable_grad():
            outputs: Sequence[Any] = step(*self.args, *inputs)
        self.is_pending, self.args = False, []
        if before != self.random and _random_state(self.device) != before:
            raise RepriseError(
                "random numbers were drawn after the model was called and before its loss was computed, which is when a model "
                "with defer_logits=True runs and draws its own. Eager draws them in the other order: draw yours before the "
                "model is called, or after the loss")
        without_zeros(outputs)
        return outputs

    def _logits_again(self) -> Tensor:
        if [_version(tensor) for tensor in self.read] != self.read_versions:
            raise ModifiedInPlace(
                "the loss was computed without its logits, which are computed again when something else asks for them; but the "
                "weight of the head was changed since, by optimizer.step() for example. Use the logits before that, or "
                "compile the model without defer_logits")
        head = self.graph.head
        with torch.inference_mode(False), set_autocast([*self.autocast, *head.autocast]):
            return without_way_back(lambda: head.module(*self.read), _SECOND_USE)

    def __del__(self) -> None:
        """Runs what was never asked for, as eager would have: it may draw random numbers and change buffers."""
        if getattr(self, "is_given_up", True) or not self.is_pending or sys is None or sys.is_finalizing():
            return
        try:
            self._run(self.graph.plain_step(self.autocast), [])
        except Exception:
            log.exception("%s was called, its outputs were dropped, and running it for its effects failed",
                          self.graph.book.settings.name)


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _random_state(device: torch.device) -> bytes:
    """Where the generators are. No tensor is kept, which would count."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return b"".join(state.numpy().tobytes() for state in states)


_SECOND_USE = ("the loss was computed without its logits, and then something else was computed from them that needs their "
               "gradient. Compute everything from the logits in one loss: reprise.compile(model, loss=function); or compile "
               "the model without defer_logits")
