"""The end of a model's graph that makes its logits, and the graph that goes on to a loss from there.

    hidden state -> product with the weight of the head -> views and casts -> an output of the model

What lies from the product on is the *head*. It reads a hidden state, which is small, and parameters, so the logits can
be computed again from these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from .autocast import Autocast

PRODUCTS = frozenset({"linear", "matmul", "mm", "addmm", "bmm", "einsum"})
# Functions of one tensor that cut, see, cast or scale rows and have no effects. With numbers in place of tensors for
# all but the first argument they can be put behind a model and captured with it.
ROW_OPERATIONS = frozenset({
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous", "getitem", "narrow", "select",
    "transpose", "permute", "movedim", "t", "float", "double", "half", "bfloat16", "to", "type", "mul", "div", "truediv",
    "log_softmax"})


def name_of(function: Any) -> str:
    """The name of a function of torch, a method or an operator of Python, in one spelling for all of them."""
    name = function if isinstance(function, str) else str(getattr(function, "__name__", ""))
    return name.strip("_") if name.startswith("__") and name.endswith("__") else name


@dataclass
class Head:
    """The calls of a model from a product to an output."""

    position: int  # of the logits among the outputs
    logits: Tensor  # without memory
    module: fx.GraphModule  # makes the logits from what it reads
    reads: list[fx.Node]  # of the model's graph
    autocast: list[Autocast] = field(default_factory=list)  # which the model itself has set there


def find_head(gm: fx.GraphModule) -> Head | None:
    """The largest output that is a product, seen and cast, and is larger than what the product reads of the model."""
    found: list[Head] = []
    for position, node in enumerate(outputs_of(gm.graph)):
        path = _path_to_product(node)
        fake = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        if not path or not isinstance(fake, Tensor) or not fake.requires_grad:
            continue
        head = _head(gm, position, fake, path)
        if sum(_numel(node) for node in head.reads if node.op != "placeholder") < fake.numel():
            found.append(head)
    return max(found, key=lambda head: head.logits.numel(), default=None)


def outputs_of(graph: fx.Graph) -> Sequence[Any]:
    results = next(node for node in graph.nodes if node.op == "output").args[0]
    assert isinstance(results, (tuple, list))  # as Dynamo writes it
    return results


def _numel(node: fx.Node) -> int:
    fake = node.meta.get("example_value")
    return fake.numel() if isinstance(fake, Tensor) else 0


def _path_to_product(node: Any) -> list[fx.Node]:
    """The calls from a product to this node; none if it is not a product, seen and cast."""
    path: list[fx.Node] = []
    while isinstance(node, fx.Node) and node.op in ("call_function", "call_method"):
        path.insert(0, node)
        if name_of(node.target) in PRODUCTS:
            return path
        if not _is_row_operation(node):
            return []
        node = node.args[0]
    return []


def _is_row_operation(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or not node.args or node.all_input_nodes != [node.args[0]]:
        return False
    return name_of(node.target) in ROW_OPERATIONS or (node.target is getattr and node.args[1] in ("T", "mT"))


def _head(gm: fx.GraphModule, position: int, logits: Tensor, path: list[fx.Node]) -> Head:
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    reads: list[fx.Node] = []

    def is_of_parameters(node: fx.Node) -> bool:
        return node.op == "placeholder" or (_is_row_operation(node) and is_of_parameters(node.all_input_nodes[0]))

    def read(node: fx.Node) -> fx.Node:
        if node not in known and node.op != "placeholder" and is_of_parameters(node):
            known[node] = graph.node_copy(node, read)
        elif node not in known:
            reads.append(node)
            known[node] = graph.placeholder(f"read_{len(reads)}")
        return known[node]

    for node in path:
        known[node] = graph.node_copy(node, read)
    graph.output(known[path[-1]])
    _placeholders_first(graph)
    return Head(position, logits, fx.GraphModule(gm, graph), reads, _autocast_at(path[0]))


def _placeholders_first(graph: fx.Graph) -> None:
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in graph.find_nodes(op="placeholder"):
        first.prepend(node)


def _autocast_at(node: fx.Node) -> list[Autocast]:
    """The settings of autocast that are active at a node, the outermost first."""
    active: dict[fx.Node, Autocast] = {}
    for before in node.graph.nodes:
        if before is node:
            break
        if before.target is _enter_autocast:
            active[before] = tuple(before.args)
        elif before.target is _exit_autocast:
            active.pop(before.args[0], None)
    return list(active.values())


def losses_of(gm: fx.GraphModule, head: Head) -> set[int]:
    """Positions of outputs that are one number and are computed from the logits."""
    outputs = outputs_of(gm.graph)
    after = {outputs[head.position]}
    for node in gm.graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    return {i for i, node in enumerate(outputs) if i != head.position and node in after and _numel(node) == 1}


@dataclass(frozen=True)
class Then:
    """A call that follows on the logits. Tensors among its arguments are the numbers of inputs that come after the
    model's."""

    function: Callable[..., Any]
    args: tuple[Any, ...]  # after the first
    kwargs: dict[str, Any]
    autocast: tuple[Autocast, ...] = ()  # if other settings hold here than where the model was called


@dataclass(frozen=True)
class Input:
    """Stands for a tensor among the arguments of a call."""

    number: int


# Puts a loss behind the logits in a graph that has more inputs than the model.
AddLoss = Callable[[fx.Graph, fx.Node, Sequence[fx.Node]], fx.Node]


def with_loss(gm: fx.GraphModule, head: Head, add: AddLoss | None, num_inputs: int) -> fx.GraphModule:
    """The graph of the model and of a loss, if there is one, with `num_inputs` inputs more. It returns the loss, the outputs of
    the model but for the logits, and what the head reads that is not an input."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    placeholders = graph.find_nodes(op="placeholder")
    with graph.inserting_after(placeholders[-1]):
        inputs = [graph.placeholder(f"of_loss_{i}") for i in reversed(range(num_inputs))][::-1]
    outputs = outputs_of(gm.graph)
    result = [] if add is None else [add(graph, copies[outputs[head.position]], inputs)]
    others = [copies.get(node, node) for i, node in enumerate(outputs) if i != head.position]
    kept = [graph.call_method("detach", (copies[node],)) for node in head.reads if node.op != "placeholder"]
    graph.output((*result, *others, *kept))
    return fx.GraphModule(gm, graph)


def one_after_the_other(calls: Sequence[Then]) -> AddLoss:
    """The calls as they were made."""

    def add(graph: fx.Graph, logits: fx.Node, inputs: Sequence[fx.Node]) -> fx.Node:
        for call in calls:
            logits = _add(graph, call, logits, inputs)
        return logits

    return add


def _add(graph: fx.Graph, call: Then, first: fx.Node, inputs: Sequence[fx.Node]) -> fx.Node:
    def argument(value: Any) -> Any:
        return inputs[value.number] if isinstance(value, Input) else value

    modes = [graph.call_function(_enter_autocast, mode) for mode in call.autocast]
    args = (first, *(argument(value) for value in call.args))
    kwargs = {name: argument(value) for name, value in call.kwargs.items()}
    is_method = getattr(Tensor, str(getattr(call.function, "__name__", "")), None) is call.function
    made = graph.call_method(call.function.__name__, args, kwargs) if is_method else graph.call_function(
        call.function, args, kwargs)
    for mode in reversed(modes):
        graph.call_function(_exit_autocast, (mode,))
    return made
