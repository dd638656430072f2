"""AOTAutograd's joint graph of a training step, as a Program.

Every node is run once on fake tensors, or was run by AOTAutograd and is as it was then. A node whose
results lie in memory that exists already is a view: it is left out, and its readers see that memory
through their own geometry.
Any other node becomes a call, and each new storage becomes a value. The builder makes everything
else (runtime/program/program_builder.h): versions, effects, generator states, the caller's op.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .. import switches
from ..errors import Unsupported
from ..native import _torch
from .captured import Captured
from .collectives import is_collective
from .layouts import Layout, Layouts, Number, extent_bytes, geometry_of, itself, layout_key, own_memory, storage_of, with_layouts
from .nodes import check_size, check_supported, scope_of
from .objects import inputs_of_gradients
from .operators import fake_results, wanted_results
from .sizes import Sizes

aten = torch.ops.aten
BATCH_NORM = aten._native_batch_norm_legit_functional.default
CUDNN_BATCH_NORM = aten.cudnn_batch_norm.default
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

Operands = dict[fx.Node, tuple[Any, list[fx.Node]]]  # what a node calls, and with which others


def operands_of(graph: fx.Graph) -> Operands:
    return {node: (node.target, node.all_input_nodes) for node in graph.nodes if node.op == "call_function"}


@dataclass
class Capture:
    """One pass over the joint graph; `run` gives the program."""

    joint: fx.GraphModule
    primals: Sequence[Any]
    tangents: Sequence[Any]
    num_forward_outputs: int
    device: torch.device
    name: str = "step"
    layouts: Layouts = field(default_factory=dict)
    sizes: Sizes | None = None  # of a step that is traced for any size
    known_at: Number = itself  # of such a step: what numbers are at the size where layouts were found
    operands: Operands = field(default_factory=dict)  # of the nodes as they were traced
    trusts_traces: bool = field(default_factory=switches.trusts_traces)

    env: dict[fx.Node, Any] = field(default_factory=dict, init=False)  # node -> fake results
    memory: dict[int, int] = field(default_factory=dict, init=False)  # storage -> the builder's name for it
    builder: _torch.ProgramBuilder | _torch.ProgramFamily = field(init=False)
    forward: set[fx.Node] = field(default_factory=set, init=False)
    asked: dict[str, list[Layout | None] | None] = field(default_factory=dict, init=False)
    keys: dict[int, str] = field(default_factory=dict, init=False)  # the keys of layouts, by the builder's number of a call

    def run(self) -> Captured:
        self.builder = builder = _torch.ProgramBuilder(self.name, self.device)
        program, origins = builder.finish(self._tell(), switches.splits_convolutions())
        keys = {op: self.keys[origin] for op, origin in enumerate(origins) if origin in self.keys}
        return Captured(program, keys, self.asked)

    def run_for_any_size(self) -> _torch.ProgramFamily:
        """The step for all sizes for which it was traced. REQUIRES: it has `sizes`."""
        assert self.sizes is not None
        self.builder = family = _torch.ProgramFamily(self.name, self.device, len(self.sizes.symbols))
        family.finish(self._tell(), switches.splits_convolutions())
        return family

    def _tell(self) -> list[Any]:
        """Tells the builder of the whole step, and returns what it is told of the gradients."""
        nodes = list(self.joint.graph.nodes)
        output = nodes[-1].args[0]
        outputs, gradients = output[: self.num_forward_outputs], output[self.num_forward_outputs :]
        self._fake_run(nodes)
        self._find_forward(nodes, outputs)
        self._find_batch_norms(nodes)
        self._add_inputs(nodes)
        for node in self._forward_order(nodes):
            self._emit(node)
        self._end_forward(nodes, outputs)
        for node in self._backward_order(nodes, gradients):
            self._emit(node)
        owners = inputs_of_gradients([n for n in nodes if n.op == "placeholder"], self.primals, gradients)
        return [(self._use(node), self._geometry(owner), node.name, scope_of(node))
                if self._is_tensor(node) else None for node, owner in zip(gradients, owners, strict=True)]

    # -- Reading the graph.

    def _fake_run(self, nodes: Sequence[fx.Node]) -> None:
        """Finds what every node makes on fake tensors, to see shapes and which results share memory."""
        inputs = iter([*self.primals, *self.tangents])
        tensors = [t for t in [*self.primals, *self.tangents] if isinstance(t, torch.Tensor)]
        mode = next((t.fake_mode for t in tensors if hasattr(t, "fake_mode")), None)
        mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        seen: set[int] = set()  # two slices of one tensor here may be two separate tensors at the next call
        with mode, torch.no_grad():
            for node in nodes:
                if node.op == "placeholder":
                    value = next(inputs)
                    if isinstance(value, torch.Tensor):
                        value = own_memory(value) if storage_of(value) in seen else value.detach()
                        seen.add(storage_of(value))
                    self.env[node] = value
                elif node.op == "get_attr":
                    constant = _attribute(self.joint, node)
                    self.env[node] = mode.from_tensor(constant)
                elif node.op == "call_function" and isinstance(node.meta.get("val"), SYMBOLIC):
                    self.env[node] = node.meta["val"]
                elif node.op == "call_function":
                    check_supported(node)
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
                    known = self._known_results(node)
                    if known is None:
                        _copy_where_no_view_is_possible(node, args)
                        known = fake_results(node.target, args, kwargs)
                    result = wanted_results(node.target, args, known)
                    check_size(node, result)
                    key = layout_key(node.target, args, kwargs, self.known_at)
                    layouts = self.asked[key] = self.layouts.get(key)
                    self.env[node] = result if layouts is None else with_layouts(result, layouts, self.known_at)

    def _known_results(self, node: fx.Node) -> Any:
        """What AOTAutograd found when it ran the node: to run it again takes about as long, and on symbols longer. None if that
        lies in memory of a call that lowering has replaced, if an operand lies in another way than AOTAutograd saw, if the
        node is not as it was traced, or if a result has more memory than it needs: PyTorch finds that at one of equal calls,
        and takes the others from a cache without it."""
        if not self._is_as_traced(node):
            return None
        operands = [(traced, here) for source in node.all_input_nodes
                    if isinstance(traced := source.meta.get("val"), torch.Tensor)
                    and isinstance(here := self.env[source], torch.Tensor)]
        there = {storage_of(traced) for traced, _ in operands}
        replaced = {storage_of(traced) for traced, here in operands if storage_of(here) != storage_of(traced)}
        if replaced and any(not _lie_alike(traced, here) for traced, here in operands):
            return None
        known = node.meta.get("val")
        results = [t for t in tree_leaves(known) if isinstance(t, torch.Tensor)]
        if any(storage_of(t) in replaced for t in results):
            return None
        if self.sizes is None:
            check_size(node, results)
            if any(storage_of(t) not in there and t.untyped_storage().nbytes() != extent_bytes(t) for t in results):
                return None
        return known

    def _is_as_traced(self, node: fx.Node) -> bool:
        """A step of any size is compared with one of fixed sizes, and need not be so exact."""
        if node.target is operator.getitem or is_collective(node.target):
            return False
        return self.sizes is not None or (self.trusts_traces and self.operands.get(node) == (node.target, node.all_input_nodes))

    def _find_forward(self, nodes: Sequence[fx.Node], outputs: Sequence[Any]) -> None:
        """Finds the nodes that forward's outputs and its effects need."""
        pending = [n for n in tree_leaves(list(outputs)) if isinstance(n, fx.Node)]
        pending += [n for n in nodes if _writes(n) or _changes_statistics(n) or
                    (n.meta.get("partitioner_tag") == "is_forward" and self._is_random(n))]
        while pending:
            node = pending.pop()
            if node not in self.forward:
                self.forward.add(node)
                pending.extend(node.all_input_nodes)

    def _is_random(self, node: fx.Node) -> bool:
        if not isinstance(node.target, OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
            return False
        return _torch.is_random(self._called(node.target, node, lambda _: None))

    def _forward_order(self, nodes: Sequence[fx.Node]) -> Iterable[fx.Node]:
        """The nodes of forward, in an order in which buffers are written as soon as their contents are known."""
        writes = {n.args[1]: n for n in nodes if _writes(n)}
        for node in nodes:
            if node in self.forward and not _writes(node):
                yield node
                if node in writes:
                    yield writes[node]

    def _backward_order(self, nodes: Sequence[fx.Node], gradients: Sequence[Any]) -> Iterable[fx.Node]:
        """The nodes of backward. A node that does not need the gradients of the outputs waits for its first reader."""
        needed = {n for n in tree_leaves(list(gradients)) if isinstance(n, fx.Node)}
        live: set[fx.Node] = set()
        for node in reversed(nodes):
            if node in needed or any(user in live for user in node.users):
                live.add(node)
        seeded = {n for n in nodes if n.op == "placeholder" and n.name.startswith("tangents")}
        for node in nodes:
            if any(source in seeded for source in node.all_input_nodes):
                seeded.add(node)
        done: set[fx.Node] = set()

        def emit(node: fx.Node) -> Iterable[fx.Node]:
            stack = [node]
            while stack:
                top = stack[-1]
                waiting = [s for s in top.all_input_nodes
                           if s.op == "call_function" and s not in self.forward and s not in done]
                if waiting:
                    stack.extend(waiting)
                    continue
                stack.pop()
                if top not in done:
                    done.add(top)
                    yield top

        for node in nodes:
            wanted = node in live and (node in seeded or node in needed)
            if wanted and node.op == "call_function" and node not in self.forward:
                yield from emit(node)

    def _find_batch_norms(self, nodes: Sequence[fx.Node]) -> None:
        """Finds batch norms whose new statistics go straight back into their buffers: eager's operator does
        that by itself. (cuDNN's operator, where lowering chose it, does so already.)"""
        self.batch_norms: set[fx.Node] = set()
        self.dropped: set[fx.Node] = set()
        writes = {n.args[1]: n for n in nodes if _writes(n)}
        for node in nodes:
            if node.target is not BATCH_NORM or not node.args[5]:
                continue
            parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
            into = [w for i in (3, 4) if (w := writes.get(parts.get(i))) is not None and w.args[0] is node.args[i]]
            if len(into) == 2:
                self.batch_norms.add(node)
                self.dropped.update(into)

    # -- Writing the program.

    def _add_inputs(self, nodes: Sequence[fx.Node]) -> None:
        placeholders = [n for n in nodes if n.op == "placeholder"]
        for node in placeholders[: len(self.primals)]:
            fake = self.env[node]
            is_tensor = isinstance(fake, torch.Tensor)
            self.builder.input(self._new_use(fake, self.builder.resident, extent_bytes(fake)) if is_tensor else None)
        for node in nodes:
            if node.op == "get_attr":
                fake = self.env[node]
                self._new_use(fake, self.builder.resident, extent_bytes(fake))
                self.builder.constant(self.memory[storage_of(fake)], _attribute(self.joint, node))

    def _end_forward(self, nodes: Sequence[fx.Node], outputs: Sequence[Any]) -> None:
        uses = [self._use(n) if self._is_tensor(n) else None for n in outputs]
        fakes = [self.env[n] for n in nodes if n.op == "placeholder"][len(self.primals) :]
        seeds = [self._new_use(fake, self.builder.seed, extent_bytes(fake)) if isinstance(fake, torch.Tensor) else None
                 for fake in fakes]
        self.builder.end_forward(uses, seeds)

    def _emit(self, node: fx.Node) -> None:
        if node.op != "call_function" or node.target is operator.getitem or node in self.dropped:
            return
        if isinstance(self.env[node], SYMBOLIC):
            return
        results: list[Any] = [t for t in tree_leaves(self.env[node]) if t is None or isinstance(t, torch.Tensor)]
        target = cast(OpOverload, node.target)
        if node in self.batch_norms:
            target, statistics, results = aten.native_batch_norm.default, results[3:], results[:3]
            for new, buffer in zip(statistics, cast(Sequence[fx.Node], node.args[3:5]), strict=True):
                self.memory[storage_of(new)] = self.memory[storage_of(self.env[buffer])]
        elif _writes(node):
            results = []
        elif self._is_view(node, results):
            return
        called = self._called(target, node, self._use)
        made = [None if t is None else self._new_use(t, self.builder.made, t.untyped_storage().nbytes())
                for t in results]
        op = self.builder.call(node.name, scope_of(node), called, made)
        if op is not None and not _writes(node) and self.sizes is None:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
            self.keys[op] = layout_key(node.target, args, kwargs)

    def _is_view(self, node: fx.Node, results: Sequence[Any]) -> bool:
        tensors = [t for t in results if isinstance(t, torch.Tensor)]
        known = [storage_of(t) in self.memory for t in tensors]
        if any(known) and not all(known):
            raise Unsupported(f"operator {node.target} returns new memory and a view together, which a plan cannot "
                              "free one by one; let it return copies, or move it out of the model")
        return bool(tensors) and all(known)

    # -- Small things.

    def _new_use(self, fake: torch.Tensor, named: Callable[[int, torch.device], int], size: int) -> _torch.Use:
        """A use of memory that gets its name now, unless another result in the same memory has given it one."""
        storage = storage_of(fake)
        if storage not in self.memory:
            self.memory[storage] = named(self._number(size), fake.device)
        return _torch.Use(self.memory[storage], self._geometry(fake))

    def _is_tensor(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and isinstance(self.env[node], torch.Tensor)

    def _use(self, node: fx.Node) -> _torch.Use:
        return _torch.Use(self.memory[storage_of(self.env[node])], self._geometry(self.env[node]))

    def _geometry(self, fake: torch.Tensor) -> _torch.Geometry:
        return geometry_of(fake, self._number)

    def _number(self, number: Any) -> Any:
        """A number as the builder is told of it."""
        return number if self.sizes is None else self.sizes.number(cast(_torch.ProgramFamily, self.builder), number)

    def _called(self, target: OpOverload, node: fx.Node, use: Callable[[fx.Node], Any]) -> tuple[Any, ...]:
        def operand(source: fx.Node) -> Any:
            """A tensor; or a number or None that another call returned."""
            known = self.env[source]
            return use(source) if isinstance(known, torch.Tensor) else self._number(known)

        return (target.name(), *tree_map_only(fx.Node, operand, (list(node.args), dict(node.kwargs))))


def _attribute(module: fx.GraphModule, node: fx.Node) -> torch.Tensor:
    return cast(torch.Tensor, operator.attrgetter(str(node.target))(module))


def _copy_where_no_view_is_possible(node: fx.Node, args: Sequence[Any]) -> None:
    """A view that AOTAutograd traced may not exist where the device lays out its operand in another way. Eager's reshape
    copies there, and so does the step."""
    if node.target is not aten.view.default or _lie_alike(cast(fx.Node, node.args[0]).meta.get("val", args[0]), args[0]):
        return
    try:
        aten.view.default(*args)
    except (RuntimeError, ValueError):
        node.target = aten._reshape_copy.default


def _lie_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """By the expressions of their strides, so that nothing is decided about symbols."""
    def strides(t: torch.Tensor) -> list[Any]:
        return [n.node.expr if isinstance(n, torch.SymInt) else n for n in t.stride()]

    return a.device == b.device and strides(a) == strides(b)


def _writes(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is aten.copy_.default


def _changes_statistics(node: fx.Node) -> bool:
    return node.target is CUDNN_BATCH_NORM and bool(node.args[5]) and node.args[3] is not None
