"""AOTAutograd's joint graph of a training step, as a Program.

Every node is run once on fake tensors. A node whose results lie in memory that is there
already is a view: it vanishes, and its readers see that memory through their own geometry.
Any other node becomes a call, and each new storage a value.

Effects become ops of their own, so that everything else can be computed again:
- batch norm: the call normalises; at its first run it also updates the running statistics,
  and an effect op after it makes their new versions;
- random calls: an op before each saves the generator's state; a token of the call is read by
  the next one's, so that the generator advances in the captured order;
- buffers written at the end of forward (`copy_`): right after what they take is computed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ..errors import Unsupported
from .captured import Captured
from .layouts import (
    Layouts,
    dense_bytes,
    extent_bytes,
    layout_key,
    own_memory,
    same_layout,
    storage_of,
    use_of,
    with_layouts,
)
from ..native import _torch
from .nodes import check_size, check_supported, scope_of
from .operators import fake_results, in_place_form, is_random, is_repeatable, lowered, wanted_results

aten = torch.ops.aten
BATCH_NORM = aten._native_batch_norm_legit_functional.default
CUDNN_BATCH_NORM = aten.cudnn_batch_norm.default


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

    program: Any = field(init=False)
    env: dict[fx.Node, Any] = field(default_factory=dict, init=False)  # node -> fake results
    values: dict[int, int] = field(default_factory=dict, init=False)  # storage -> value
    renamed: dict[fx.Node, int] = field(default_factory=dict, init=False)  # node -> newer version
    token: int | None = field(default=None, init=False)
    new_contents: dict[int, int] = field(default_factory=dict, init=False)  # old version -> new
    forward: set[fx.Node] = field(default_factory=set, init=False)
    mutated: set[int] = field(default_factory=set, init=False)  # values with a newer version
    keys: dict[int, str] = field(default_factory=dict, init=False)

    def run(self) -> Captured:
        self.program = _torch.Program(self.name, self.device)
        nodes = list(self.joint.graph.nodes)
        output = nodes[-1].args[0]
        self.outputs, self.gradients = (
            output[: self.num_forward_outputs], output[self.num_forward_outputs :])
        self._fake_run(nodes)
        self.output_storages = {
            storage_of(self.env[n]) for n in self.outputs if isinstance(n, fx.Node)}
        self._find_forward(nodes)
        self.seed_values: set[int] = set()
        self._add_inputs(nodes)
        self._find_batch_norms(nodes)
        self._count_readers(nodes)
        for node in self._order(nodes, forward=True):
            self._emit(node, "forward")
        self._add_caller(nodes)
        for node in self._order(nodes, forward=False):
            self._emit(node, "backward")
        self._hand_over()
        return Captured(self.program, self.keys)

    # -- Reading the graph.

    def _fake_run(self, nodes: Sequence[fx.Node]) -> None:
        """Runs every node on fake tensors, to see shapes and which results share memory."""
        inputs = iter([*self.primals, *self.tangents])
        tensors = [t for t in [*self.primals, *self.tangents] if isinstance(t, torch.Tensor)]
        mode = next((t.fake_mode for t in tensors if hasattr(t, "fake_mode")), None)
        mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        seen: set[int] = set()  # two slices of one tensor may be two tensors at the next call
        with mode, torch.no_grad():
            for node in nodes:
                if node.op == "placeholder":
                    value = next(inputs)
                    if isinstance(value, torch.Tensor):
                        value = own_memory(value) if storage_of(value) in seen else value.detach()
                        seen.add(storage_of(value))
                    self.env[node] = value
                elif node.op == "get_attr":
                    constant = _attribute(self.joint, node.target)
                    self.env[node] = mode.from_tensor(constant)
                elif node.op == "call_function":
                    check_supported(node)
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
                    result = wanted_results(node.target, args, fake_results(node.target, args, kwargs))
                    check_size(node, result)
                    layouts = self.layouts.get(layout_key(node.target, args, kwargs))
                    self.env[node] = result if layouts is None else with_layouts(result, layouts)

    def _find_forward(self, nodes: Sequence[fx.Node]) -> None:
        """What the outputs of forward and its effects need."""
        pending = [n for n in tree_leaves(list(self.outputs)) if isinstance(n, fx.Node)]
        pending += [n for n in nodes if _writes(n) or _changes_statistics(n) or
                    (_is_call(n) and is_random(n) and n.meta.get("partitioner_tag") == "is_forward")]
        while pending:
            node = pending.pop()
            if node not in self.forward:
                self.forward.add(node)
                pending.extend(node.all_input_nodes)

    def _order(self, nodes: Sequence[fx.Node], *, forward: bool) -> Iterable[fx.Node]:
        """Calls of one phase. Forward: buffers are written as soon as their contents are known.
        Backward: what does not need the gradients of the outputs waits for its first reader."""
        if forward:
            writes = {n.args[1]: n for n in nodes if _writes(n)}
            for node in nodes:
                if node in self.forward and not _writes(node):
                    yield node
                    if node in writes:
                        yield writes[node]
            return
        needed = {n for n in tree_leaves(list(self.gradients)) if isinstance(n, fx.Node)}
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
        """Batch norms whose new statistics go straight back into their buffers."""
        self.batch_norms: dict[fx.Node, dict[int, fx.Node]] = {}
        self.dropped: set[fx.Node] = set()
        writes = {n.args[1]: n for n in nodes if _writes(n)}
        for node in nodes:
            if _changes_statistics(node):
                self.batch_norms[node] = {}
                self.mutated.update(self.values[storage_of(self.env[b])] for b in node.args[3:5])
                continue
            if node.op != "call_function" or node.target is not BATCH_NORM or not node.args[5]:
                continue
            parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
            into = [writes.get(parts.get(i)) for i in (3, 4)]
            if all(w is not None and w.args[0] is node.args[i] for w, i in zip(into, (3, 4))):
                self.batch_norms[node] = parts
                self.dropped.update(into)
        for node in nodes:
            if _writes(node):
                self.mutated.add(self.values[storage_of(self.env[node.args[0]])])

    def _count_readers(self, nodes: Sequence[fx.Node]) -> None:
        """Where each storage is read last: what is dead there may be written over."""
        self.readers: dict[int, list[int]] = {}
        for position, node in enumerate(nodes):
            self.env.setdefault(node, None)
            for source in node.all_input_nodes:
                if isinstance(self.env[source], torch.Tensor):
                    self.readers.setdefault(storage_of(self.env[source]), []).append(position)
        self.position = {node: position for position, node in enumerate(nodes)}

    # -- Writing the program.

    def _add_inputs(self, nodes: Sequence[fx.Node]) -> None:
        uses = []
        placeholders = [n for n in nodes if n.op == "placeholder"]
        for node in placeholders[: len(self.primals)]:
            fake = self.env[node]
            if not isinstance(fake, torch.Tensor):
                uses.append(None)
                continue
            storage = storage_of(fake)
            if storage not in self.values:
                self.values[storage] = self.program.value(
                    self._counted(fake, extent_bytes(fake)), resident=True)
            uses.append(self._use(node))
        self.program.set_inputs(uses)
        self.constants: dict[int, torch.Tensor] = {}
        self.input_values = {use.value for use in uses if use is not None}
        for node in nodes:
            if node.op == "get_attr":
                fake = self.env[node]
                value = self.program.value(self._counted(fake, extent_bytes(fake)), resident=True)
                self.values[storage_of(fake)] = value
                self.constants[value] = _attribute(self.joint, node.target)
                self.program.constant(value, self.constants[value])

    def _add_caller(self, nodes: Sequence[fx.Node]) -> None:
        outputs = [self._use(n) if isinstance(n, fx.Node) else None for n in self.outputs]
        self.program.set_forward_outputs(outputs)
        seeds, uses = [], []
        placeholders = [n for n in nodes if n.op == "placeholder"]
        for node in placeholders[len(self.primals) :]:
            fake = self.env[node]
            value = self.program.value(self._counted(fake, extent_bytes(fake)), held=True)
            self.values[storage_of(fake)] = value
            seeds.append(value)
            uses.append(self._use(node))
        self.program.set_seeds(uses)
        self.seed_values = set(seeds)
        kept = self.program.value(0, held=True)
        reads = [use.value for use in outputs if use is not None]
        self.program.op("caller", name="caller", scope="", phase="caller", once=True,
                        also_reads=reads, also_makes=[*seeds, kept])

    def _emit(self, node: fx.Node, phase: str) -> None:
        if node.op != "call_function" or node.target is operator.getitem or node in self.dropped:
            return
        results = [t for t in tree_leaves(self.env[node]) if t is None or isinstance(t, torch.Tensor)]
        if node in self.batch_norms:
            self._emit_batch_norm(node, phase)
        elif _writes(node):
            self._emit_write(node, phase)
        elif not self._is_view(node, results):
            self._emit_call(node, results, phase)

    def _is_view(self, node: fx.Node, results: Sequence[Any]) -> bool:
        tensors = [t for t in results if isinstance(t, torch.Tensor)]
        known = [storage_of(t) in self.values for t in tensors]
        if any(known) and not all(known):
            raise Unsupported(f"operator {node.target} returns new memory and a view together, which no plan can free "
                              "one by one; let it return copies, or move it out of the model")
        return bool(tensors) and all(known)

    def _emit_call(self, node: fx.Node, results: Sequence[Any], phase: str) -> None:
        sources = self._read_values(node)
        call = self._call(node.target, node.args, node.kwargs)
        random = is_random(node)
        # Random numbers of another device are drawn once: a state is saved of this one's generator.
        elsewhere = any(t.device.type != self.device.type for t in results if t is not None)
        state = self._save_generator(node, phase) if random and not elsewhere else None
        outputs = [self._new_value(t) if isinstance(t, torch.Tensor) else None for t in results]
        tokens = []
        if state is not None:
            self.token = self.program.value(0)
            tokens = [self.token]
        in_place = self._in_place(node, outputs) if state is None else None
        # What reads memory that changes later in the step cannot be computed again.
        once = not is_repeatable(node, self.device) or bool(sources & self.mutated) or (random and elsewhere)
        op = self.program.op(
            "call", name=node.name, scope=scope_of(node), phase=phase, once=once, call=call,
            outputs=outputs, generator_state=state, also_makes=tokens, in_place_call=in_place,
            added=self._added_seed(node, outputs))
        self._note_key(op, node)

    def _added_seed(self, node: fx.Node, outputs: Sequence[Any]) -> tuple[int, int] | None:
        """Of the plain sum of a gradient from the caller and another: the values of both."""
        if node.target is not aten.add.Tensor or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
            return None
        uses = [self._use(source) for source in node.args]
        seeds = [use.value for use in uses if use.value in self.seed_values]
        if len(seeds) != 1 or not all(use.same_geometry(outputs[0]) for use in uses):
            return None
        return seeds[0], next(use.value for use in uses if use.value != seeds[0])

    def _save_generator(self, node: fx.Node, phase: str) -> int:
        state = self.program.value(_torch.generator_state_bytes(self.device))
        self.program.op("generator_state", name=f"{node.name}_state", scope=scope_of(node), phase=phase,
                        once=True, also_reads=[] if self.token is None else [self.token],
                        also_makes=[state])
        return state

    def _in_place(self, node: fx.Node, outputs: Sequence[Any]) -> tuple | None:
        """The call that writes over one of its operands, and the note that it may."""
        if len(outputs) != 1 or outputs[0] is None:
            return None
        position = self.position[node]
        best = None
        for index, form in in_place_form(node, self.device):
            source = node.args[index]
            use = self._use(source)
            later = sum(p > position for p in self.readers[storage_of(self.env[source])])
            if self._may_overwrite(node, use, outputs[0]) and (best is None or later < best[0]):
                best = (later, use, form)
        if best is None:
            return None
        _, use, (target, args, kwargs) = best
        self.program.overwrite(outputs[0].value, use.value)
        return self._call(target, args, kwargs)

    def _may_overwrite(self, node: fx.Node, use: Any, output: Any) -> bool:
        if use.value in self.input_values or use.value in self.new_contents.values():
            return False
        fills = _torch.granted_bytes(self.device, use.extent_bytes) == self.program.value_bytes(use.value)
        if not use.same_geometry(output) or not fills:
            return False
        if self.program.value_bytes(use.value) != self.program.value_bytes(output.value):
            return False
        if self.program.is_pinned(use.value):
            return False
        uses = [self._use(n) for n in node.all_input_nodes if isinstance(self.env[n], torch.Tensor)]
        return all(u.same_geometry(use) for u in uses if u.value == use.value)

    def _emit_batch_norm(self, node: fx.Node, phase: str) -> None:
        x, weight, bias, mean, var, _, momentum, eps = node.args
        cudnns = node.target is CUDNN_BATCH_NORM
        target = CUDNN_BATCH_NORM if cudnns else aten.native_batch_norm.default
        results = list(self.env[node])[: 4 if cudnns else 3]
        first = self._call(target, (x, weight, bias, mean, var, True, momentum, eps), {})
        again = self._call(target, (x, weight, bias, None, None, True, momentum, eps), {})
        outputs = [self._new_value(t) for t in results]
        op = self.program.op(
            "call", name=node.name, scope=scope_of(node), phase=phase, once=False, call=again,
            first_call=first, outputs=outputs)
        self._note_key(op, node)
        old = [self._use(buffer).value for buffer in (mean, var)]
        made = [self._new_version(value) for value in old]
        parts = self.batch_norms[node]
        self.renamed.update((parts[i], new) for i, new in zip((3, 4), made) if i in parts)
        self.program.op("effect", name=f"{node.name}_statistics", scope=scope_of(node), phase=phase,
                        once=True, also_reads=[*old, outputs[1].value], also_makes=made)

    def _emit_write(self, node: fx.Node, phase: str) -> None:
        target = self._use(node.args[0])
        call = self._call(aten.copy.default, node.args, node.kwargs)
        in_place = self._call(aten.copy_.default, node.args, node.kwargs)
        new = self._new_version(target.value)
        self.program.op("call", name=node.name, scope=scope_of(node), phase=phase, once=True, call=call,
                        in_place_call=in_place, outputs=[self._use(node.args[0], value=new)])

    def _new_version(self, old: int) -> int:
        new = self.program.value(self.program.value_bytes(old))
        self.program.overwrite(new, old)
        self.new_contents[old] = new
        return new

    def _hand_over(self) -> None:
        """Gradients as autograd takes them over: each in memory of its own, else it copies."""
        uses, taken, copied = [], set(), 0
        for node, primal in zip(self.gradients, self.primals):
            if not isinstance(node, fx.Node):
                uses.append(None)
                continue
            use = self._use(node)
            if not same_layout(self.env[node], primal):
                copied = max(copied, self._counted(primal, dense_bytes(primal)))
            elif use.value in taken or self.program.is_pinned(use.value):
                use = self._clone(node, use)
            taken.add(use.value)
            uses.append(use)
        self.program.set_gradients(uses)
        self.program.set_new_contents(list(self.new_contents.values()))
        values = sorted({u.value for u in uses if u is not None})
        op = self.program.op("hand_over", name="hand_over", scope="", phase="backward", once=True, also_reads=values)
        self.program.set_workspace_bytes(op, copied)

    def _clone(self, node: fx.Node, use: Any) -> Any:
        with torch.no_grad():
            fake = self.env[node]
            copy = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        value = self.program.value(self._counted(fake, dense_bytes(fake)))
        output = use_of(value, copy)
        self.program.op("call", name=f"{node.name}_copy", scope=scope_of(node), phase="backward", once=False,
                        call=("aten::clone", "", [use], {"memory_format": torch.preserve_format}),
                        outputs=[output])
        return output

    # -- Small things.

    def _note_key(self, op: int, node: fx.Node) -> None:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        self.keys[op] = layout_key(node.target, args, kwargs)

    def _read_values(self, node: fx.Node) -> set[int]:
        return {self._use(n).value for n in node.all_input_nodes if isinstance(self.env[n], torch.Tensor)}

    def _new_value(self, fake: torch.Tensor) -> Any:
        storage = storage_of(fake)
        if storage not in self.values:
            size = self._counted(fake, fake.untyped_storage().nbytes())
            held = storage in self.output_storages
            self.values[storage] = self.program.value(size, held=held)
        return use_of(self.values[storage], fake)

    def _use(self, node: fx.Node, value: int | None = None) -> Any:
        fake = self.env[node]
        if value is None:
            value = self.renamed.get(node)
        if value is None:
            value = self.values[storage_of(fake)]
            value = self.new_contents.get(value, value)
        return use_of(value, fake)

    def _call(self, target: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple:
        target = lowered(target)
        if (target is aten.native_batch_norm_backward.default and args[7]) or (
                target is aten.cudnn_batch_norm_backward.default):
            args = [*args[:3], None, None, *args[5:]]  # not read in training
        args, kwargs = tree_map_only(fx.Node, self._operand, (list(args), dict(kwargs)))
        name, _, overload = target.name().partition(".")
        return (name, overload, args, kwargs)

    def _operand(self, node: fx.Node) -> Any:
        """A value, or a number or nothing that another call returned."""
        known = self.env[node]
        return self._use(node) if isinstance(known, torch.Tensor) else known

    def _counted(self, fake: torch.Tensor, size: int) -> int:
        return _torch.granted_bytes(self.device, size) if fake.device.type == self.device.type else 0


def _attribute(module: fx.GraphModule, target: str) -> torch.Tensor:
    return operator.attrgetter(target)(module)


def _writes(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is aten.copy_.default


def _changes_statistics(node: fx.Node) -> bool:
    return node.target is CUDNN_BATCH_NORM and node.args[5] and node.args[3] is not None


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, OpOverload)
