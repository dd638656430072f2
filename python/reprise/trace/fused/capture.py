"""A training step of generated kernels, as a Program.

Inductor's launches become calls of reprise::launch and its calls of ATen stay what they are, so planners, costs and the
executor treat both alike. A launch makes the memory that nobody has written before it, and changes the rest. Memory
that several calls write part by part is made empty first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import SequenceKey, tree_flatten_with_path, tree_leaves, tree_map_only

from ...errors import Unsupported
from ...native import _torch
from ..captured import Captured
from ..layouts import Layout, Layouts, extent_bytes, geometry_of, layout_key, storage_of, with_layouts
from .lowered import FIRST_FORM, Allocation, CompiledStep, Extern, Form, KernelFile, Launch, Lowered, Part, Scratch
from .saved_steps import compiled_step

aten = torch.ops.aten


@dataclass(frozen=True)
class Effect:
    """A copy into a buffer of the model, which runs once at the end of forward."""

    buffer: int  # which primal
    output: int  # which of forward's outputs is copied


def take_effects(joint: fx.GraphModule, num_forward_outputs: int) -> list[Effect]:
    """Takes copies into buffers out of the graph and returns their sources as further outputs of forward, so that
    everything in the graph can be computed again."""
    graph = joint.graph
    output = next(iter(reversed(graph.nodes)))
    results = list(output.args[0])
    placeholders = graph.find_nodes(op="placeholder")
    effects: list[Effect] = []
    sources: list[Any] = []
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        if node.args[0].op != "placeholder":
            raise Unsupported(f"{node} writes to memory that is not a buffer of the model")
        effects.append(Effect(placeholders.index(node.args[0]), num_forward_outputs + len(sources)))
        sources.append(node.args[1])
        node.replace_all_uses_with(node.args[1])
        graph.erase_node(node)
    output.args = ((*results[:num_forward_outputs], *sources, *results[num_forward_outputs:]),)
    if "desc" in output.meta:  # what each result is, for AOTAutograd's partitioner
        known = tree_leaves(output.meta["desc"])
        output.meta["desc"] = [*known[:num_forward_outputs], *known[:1] * len(sources), *known[num_forward_outputs:]]
    graph.set_codegen(fx.graph.CodeGen())  # AOTAutograd's expects as many results as before
    joint.recompile()
    return effects


@dataclass(frozen=True)
class _Place:
    """Where a name of the lowered graph lies."""

    memory: int  # the builder's name
    offset: int  # in elements


class FusedCapture:
    """Lowers the joint graph once for each form; `run` gives the program."""

    def __init__(self, joint: fx.GraphModule, primals: Sequence[Any], tangents: Sequence[Any], num_forward_outputs: int,
                 device: torch.device) -> None:
        self.primals, self.tangents, self.device = primals, tangents, device
        self.num_forward_outputs = num_forward_outputs
        self.effects = take_effects(joint, num_forward_outputs)
        self.joint = joint
        self._compiled: dict[Form, CompiledStep] = {}
        self.mode = next(p.fake_mode for p in primals if isinstance(p, FakeTensor))

    def compiled_as(self, form: Form) -> CompiledStep:
        if form not in self._compiled:
            self._compiled[form] = compiled_step(self.joint, (self.primals, self.tangents),
                                                 self.num_forward_outputs + len(self.effects), self.device, form)
        return self._compiled[form]

    def run(self, name: str, layouts: Layouts, form: Form = FIRST_FORM) -> Captured:
        self.compiled = self.compiled_as(form)
        self.step = self.compiled.lowered
        self.builder = _torch.ProgramBuilder(name, self.device)
        self.layouts, self.keys, self.asked = layouts, dict[int, str](), dict[str, list[Layout | None] | None]()
        self.places: dict[str, _Place] = {}
        self.changing = {self._primal(effect.buffer) for effect in self.effects}
        for i, fake in enumerate(self.primals):
            self.builder.input(self._outside(self._primal(i), fake, self.builder.resident))
        outputs = self._side(self.step.forward, self.compiled.forward, {})
        self._copy_buffers(outputs)
        own = self.num_forward_outputs + len(self.effects)
        saved = zip(self.step.saved, self.step.forward.outputs[own:], strict=True)
        self.places = {name: self._place(part) for name, part in saved if part is not None}
        seeds = [self._outside(f"tangents_{i + 1}", fake, self.builder.seed) for i, fake in enumerate(self.tangents)]
        self.builder.end_forward(outputs[: self.num_forward_outputs], seeds)
        gradients = self._side(self.step.backward, self.compiled.backward, self.step.samples)
        handed_over = [None if use is None else (use, geometry_of(primal), f"gradient_{i}", "")
                       for i, (use, primal) in enumerate(zip(gradients, self.primals, strict=True))]
        program, origins = self.builder.finish(handed_over, False)
        keys = {op: self.keys[origin] for op, origin in enumerate(origins) if origin in self.keys}
        return Captured(program, keys, self.asked, sorted(self.compiled.files))

    def _copy_buffers(self, outputs: Sequence[Any]) -> None:
        """Copies what forward made into the model's buffers, all that have one type in one call: a network has hundreds of
        them, and a call for each would take longer than many of its kernels."""
        alike: dict[Any, list[Effect]] = {}
        for effect in self.effects:
            buffer = self.primals[effect.buffer]
            alike.setdefault((buffer.dtype, buffer.device), []).append(effect)
        for number, effects in enumerate(alike.values()):
            buffers = [_torch.Use(self.places[self._primal(effect.buffer)].memory, geometry_of(self.primals[effect.buffer]))
                       for effect in effects]
            called: tuple[Any, ...] = ("aten::_foreach_copy_", [buffers, [outputs[effect.output] for effect in effects]], {})
            self.builder.call(f"buffers_{number}", "", called, [])

    def _primal(self, position: int) -> str:
        """The name of an input in the lowered graph."""
        return f"primals_{position + 1}"

    # -- One side.

    def _side(self, lowered: Lowered, files: dict[str, KernelFile], samples: dict[str, int]) -> list[Any]:
        """Adds the calls of forward or backward, and returns uses of what it returns."""
        self.files, self.samples = files, samples
        self.allocations: dict[str, Allocation] = {}  # not made yet
        for name, tensor in lowered.constants.items():
            with self.mode:
                fake = self.mode.from_tensor(tensor)
            self._outside(name, fake, self.builder.resident)
            self.builder.constant(self.places[name].memory, tensor)
        for position, item in enumerate(lowered.items):
            match item:
                case Allocation():
                    self.allocations[item.part.memory] = item
                case Launch():
                    self._launch(item, lowered.items[position + 1 :])
                case Extern():
                    self._extern(item)
        return [None if part is None else self._use(part) for part in lowered.outputs]

    def _launch(self, launch: Launch, later: Sequence[Any]) -> None:
        written = {part.memory for part, writes in _parts(launch) if writes}
        for part, writes in _parts(launch):  # memory that this launch does not make as a whole
            allocation = self.allocations.get(part.memory)
            if writes and allocation is not None and allocation.part != part:
                self._make_empty(allocation)
        made = {part.memory: self.allocations.pop(part.memory) for part, writes in _parts(launch)
                if writes and part.memory in self.allocations}
        changing = {part.memory for part, _ in _parts(launch) if part.memory in self.changing}
        spoiled = {out for out in written if launch.flows.get(out, changing) & changing}
        only_effects = changing and not changing & written and self._only_copied(spoiled, later)
        results = []
        for name, allocation in made.items():
            memory = self.builder.made(allocation.size, allocation.part.device)
            self.places[name] = _Place(memory, 0)
            results.append(self._use(allocation.part))
        first = self._launch_call(launch, made, frozenset())
        called = self._launch_call(launch, made, frozenset(changing)) if only_effects else first
        self.builder.call(launch.kernel, launch.scope, called, results, first if only_effects else None)

    def _only_copied(self, spoiled: set[str], later: Sequence[Any]) -> bool:
        """Whether this memory is read by nothing but copies into buffers."""
        copied = {self.step.forward.outputs[effect.output].memory for effect in self.effects}  # type: ignore[union-attr]
        kept = {part.memory for i, part in enumerate(self.step.forward.outputs)
                if part is not None and i not in {effect.output for effect in self.effects}}
        return spoiled <= copied and not spoiled & kept and not any(spoiled & _read(item) for item in later)

    def _launch_call(self, launch: Launch, made: dict[str, Allocation], unread: frozenset[str]) -> tuple[Any, ...]:
        """A call of reprise::launch. It reads zeros instead of what is `unread`."""
        kernel = self.files[launch.kernel]
        reads: list[_torch.Use] = []
        read: list[str] = []
        samples: list[int] = []
        changes: list[_torch.Use] = []
        order = list(made)
        workspace = 0

        def scratch(size: int) -> tuple[str, int]:
            nonlocal workspace
            workspace += _aligned(size)
            return "workspace", workspace - _aligned(size)

        def argument(position: int | None) -> tuple[str, int]:
            if position is None:
                return "null", 0
            match launch.arguments[position]:
                case Scratch(size):
                    return scratch(size)
                case (part, _) if part.memory in unread:
                    return scratch(part.extent * part.dtype.itemsize)
                case (part, _) if part.memory in made:
                    return "made", order.index(part.memory)
                case (part, True):
                    changes.append(self._use(part))
                    return "changed", len(changes) - 1
                case (part, False):
                    reads.append(self._use(part))
                    read.append(part.memory)
                    samples.append(self.samples.get(part.memory, 0))
                    return "read", len(reads) - 1
                case number:
                    return "number", _bits(number, launch.types[position])

        arguments = [argument(position) for position in kernel.order]
        over = [number for result, operand in launch.over if result in made and operand in read
                for number in (order.index(result), read.index(operand))]
        return ("reprise::launch",
                [kernel.file, kernel.function, self.device, list(kernel.grid), _torch.launch_arguments(arguments), reads, changes,
                 _torch.launch_made([(_geometry(a.part), a.size) for a in made.values()]), workspace, launch.atomic,
                 samples if any(samples) else [], over], {})

    def _make_empty(self, allocation: Allocation) -> None:
        part = self.allocations.pop(allocation.part.memory).part
        self.places[part.memory] = _Place(self.builder.made(allocation.size, part.device), 0)
        elements = allocation.size // part.dtype.itemsize
        whole = _torch.Use(self.places[part.memory].memory, _torch.Geometry(part.dtype, [elements], [1], 0))
        self.builder.call(f"{part.memory}_empty", "", ("aten::empty.memory_format", [[elements]], {
            "dtype": part.dtype, "device": part.device}), [whole])

    # -- Calls of ATen.

    def _extern(self, extern: Extern) -> None:
        operator, kwargs = extern.operator, dict(extern.kwargs)
        if extern.out is not None:
            whole = self._functional(extern)
            if whole is not None:
                del self.allocations[extern.out.memory]
                self._call(whole, extern, [((), extern.out)])
                return
            if extern.out.memory in self.allocations:
                self._make_empty(self.allocations[extern.out.memory])
            kwargs["out"] = extern.out
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments)
        for part in _leaves((extern.args, kwargs)):
            if writes and part.memory in self.allocations:
                self._make_empty(self.allocations[part.memory])
        if writes:
            self.builder.call(extern.name, extern.scope, (operator.name(), *self._uses((list(extern.args), kwargs))), [])
        else:
            self._call(operator, extern, extern.results)

    def _functional(self, extern: Extern) -> OpOverload | None:
        """The operator that makes its result itself, if it makes just what `out` is."""
        allocation = self.allocations.get(extern.out.memory) if extern.out is not None else None
        if allocation is None or allocation.part != extern.out:
            return None
        wanted = [a.name for a in extern.operator._schema.arguments if not a.is_out]
        packet = extern.operator.overloadpacket
        for name in packet.overloads():
            overload: OpOverload = getattr(packet, name)
            if [a.name for a in overload._schema.arguments] != wanted:
                continue
            fake, _ = self._fake_results(overload, extern)
            if isinstance(fake, torch.Tensor) and tuple(fake.stride()) == allocation.part.strides and (
                    fake.untyped_storage().nbytes() == allocation.size):
                return overload
        return None

    def _fake_results(self, operator: OpOverload, extern: Extern) -> tuple[Any, str]:
        """What the call returns, and the text that identifies its layouts. Where the device's layouts are known, it has
        those: its storages may be larger than those of fake tensors."""
        with self.mode, torch.no_grad():
            fakes: dict[str, torch.Tensor] = {}

            def fake(part: Part) -> torch.Tensor:
                base = fakes.setdefault(part.memory, torch.empty(0, dtype=part.dtype, device=part.device))
                if base.numel() < part.extent or base.dtype != part.dtype:
                    base = fakes[part.memory] = torch.empty(part.extent, dtype=part.dtype, device=part.device)
                return base.as_strided(part.sizes, part.strides, part.offset)

            args, kwargs = tree_map_only(Part, fake, (list(extern.args), extern.kwargs))
            key = layout_key(operator, args, kwargs)
            found, known = operator(*args, **kwargs), self.layouts.get(key)
            self.asked[key] = known
            return (found if known is None else with_layouts(found, known)), key

    def _call(self, operator: OpOverload, extern: Extern, results: Sequence[tuple[tuple[int, ...], Part]]) -> None:
        """A call whose results are new memory."""
        known = dict(results)
        called = (operator.name(), *self._uses((list(extern.args), extern.kwargs)))
        fake, key = self._fake_results(operator, extern)
        leaves = [(tuple(cast(SequenceKey[Any], position).idx for position in path), leaf)
                  for path, leaf in tree_flatten_with_path(fake)[0]]
        made: list[_torch.Use | None] = []
        memories: dict[int, int] = {}
        for place, leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                if leaf is None:
                    made.append(None)
                continue
            if storage_of(leaf) not in memories:
                memories[storage_of(leaf)] = self.builder.made(leaf.untyped_storage().nbytes(), leaf.device)
            memory, part = memories[storage_of(leaf)], known.get(place)
            made.append(_torch.Use(memory, geometry_of(leaf)))
            if part is None:
                continue
            if _places(part.sizes, part.strides) != _places(leaf.shape, leaf.stride()):
                raise Unsupported(f"{operator} returns strides {leaf.stride()} on the device, and the generated kernels around "
                                  f'it expect {part.strides}. Use engine="eager"')
            self.places[part.memory] = _Place(memory, int(leaf.storage_offset()))
        self.keys[self.builder.call(extern.name, extern.scope, called, made)] = key

    # -- Small things.

    def _outside(self, name: str, fake: Any, named: Any) -> _torch.Use | None:
        """A use of memory that the step does not make."""
        if not isinstance(fake, torch.Tensor):
            return None
        self.places[name] = _Place(named(extent_bytes(fake), fake.device), int(fake.storage_offset()))
        return _torch.Use(self.places[name].memory, geometry_of(fake))

    def _place(self, part: Part) -> _Place:
        place = self.places[part.memory]
        return _Place(place.memory, place.offset + part.offset)

    def _use(self, part: Part) -> _torch.Use:
        return _torch.Use(self._place(part).memory, _geometry(part, self._place(part).offset))

    def _uses(self, arguments: Any) -> Any:
        return tree_map_only(Part, self._use, arguments)


def _places(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides that matter."""
    return [stride for size, stride in zip(sizes, strides, strict=True) if size > 1]


def _bits(number: Any, kind: str) -> int:
    """A number as a kernel finds it in the lowest bytes of a word."""
    if not isinstance(number, float):
        return int(number)
    code = "<f4x" if kind == "fp32" or kind.endswith("float") else "<d"
    return int(struct.unpack("<q", struct.pack(code, number))[0])


def _geometry(part: Part, offset: int | None = None) -> _torch.Geometry:
    return _torch.Geometry(part.dtype, list(part.sizes), list(part.strides), part.offset if offset is None else offset)


def _parts(launch: Launch) -> list[tuple[Part, bool]]:
    return [argument for argument in launch.arguments if isinstance(argument, tuple)]


def _leaves(arguments: Any) -> list[Part]:
    found: list[Part] = []
    tree_map_only(Part, found.append, arguments)
    return found


def _read(item: Any) -> set[str]:
    if isinstance(item, Launch):
        return {part.memory for part, _ in _parts(item)}
    return {part.memory for part in _leaves((item.args, item.kwargs))} if isinstance(item, Extern) else set()


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64
