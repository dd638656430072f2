"""Kernels that Inductor generates for a training step, as plain data.

Inductor lowers a graph to a flat list of lines: kernels to define, memory to allocate, launches, calls of ATen. It would
then plan memory and write a Python function. Here it stops before that: the lines become launches and calls over named
memory, and Reprise decides what is allocated, freed and run again.

tests/torch/test_fused.py lowers small steps with the installed torch and looks at what is found here.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import math
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from ...errors import Unsupported
from ..nodes import scope_of
from . import internals
from .lowered import FAR, FIRST_FORM, NEAR, Allocation, Binary, Extern, Form, Launch, Lowered, LoweredStep, Part, Scratch

aten = torch.ops.aten

_ATOMIC = re.compile(r"\batomic_\w+(<[^>]*>)?\(")  # a call in C++ or in Triton
_IGNORED = (internals.FreeLine, internals.FreeIfNotReusedLine, internals.CommentLine, internals.EnterDeviceContextManagerLine,
            internals.ExitDeviceContextManagerLine, internals.LineContext)
_PARTITIONS: dict[str, dict[str, Any]] = {NEAR: {}, FAR: {
    "ban_recompute_used_far_apart": False, "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False}}


def lower_step(joint: fx.GraphModule, joint_inputs: Any, num_forward_outputs: int, form: Form = FIRST_FORM) -> LoweredStep:
    """Lowers forward and backward. The graph stays as it is."""
    joint = fx.GraphModule(joint, copy.deepcopy(joint.graph))
    with (_settings(), functorch_config.patch(_PARTITIONS[form.partition]),
          internals.V.set_fake_mode(detect_fake_mode(joint_inputs))):
        _put_zeros(joint.graph, [f"tangents_{i + 1}" for i in form.absent])
        joint = internals._recursive_joint_graph_passes(joint)
        for node in joint.graph.nodes:
            if _is_random(node):
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
                node.meta["ac_graph_id"] = 0
        forward, backward = min_cut_rematerialization_partition(
            joint, joint_inputs, compiler="inductor", num_fwd_outputs=num_forward_outputs)
        saved = [node.name for node in _results(forward)[num_forward_outputs:]]
        first = _lower(forward, _examples(forward), range(num_forward_outputs), is_backward=False)
        _restride(backward, dict(zip(saved, first.outputs[num_forward_outputs:], strict=True)))
        second = _lower(backward, _examples(backward), range(len(_results(backward))), is_backward=True,
                        layout_opt=first.layout_opt)
    return LoweredStep(first, second, saved, _samples(forward, saved))


def _put_zeros(graph: fx.Graph, names: Sequence[str]) -> None:
    """Lets the graph compute with zeros instead of these inputs; the passes that follow take the computation away."""
    placeholders = graph.find_nodes(op="placeholder")
    for node in placeholders:
        if node.name not in names:
            continue
        fake = node.meta["val"]
        with graph.inserting_after(placeholders[-1]):
            zeros = graph.call_function(aten.full.default, (list(fake.shape), 0), {"dtype": fake.dtype, "device": fake.device})
        zeros.meta["val"] = fake
        node.replace_all_uses_with(zeros)


def _samples(forward: fx.GraphModule, saved: Sequence[str]) -> dict[str, int]:
    """For what max pooling saves: at the border, where its windows are padded, not every place in a window lies in the image.
    The middle one does."""
    samples: dict[str, int] = {}
    for node in forward.graph.nodes:
        pool = node.args[0] if node.target is operator.getitem and node.args[1] == 1 else None
        if node.name not in saved or pool is None or not str(pool.target).startswith("prims._low_memory_max_pool"):
            continue
        kernel, _, padding = pool.args[1:4]
        if any(padding):
            samples[node.name] = functools.reduce(lambda place, size: place * size + size // 2, kernel, 0)
    return samples


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """One kernel for each node of the scheduler: grouped kernels would hold each other's buffers."""
    scheduling = internals.CppScheduling
    grouped, scheduling.MAX_FUSED_KERNEL_ARGS_NUM = scheduling.MAX_FUSED_KERNEL_ARGS_NUM, 0
    try:
        with (internals.config.patch(dict(internals.SETTINGS)), torch._C._DisableAutocast(), torch.no_grad(),
              internals.DebugContext()):
            yield
    finally:
        scheduling.MAX_FUSED_KERNEL_ARGS_NUM = grouped


def _is_random(node: fx.Node) -> bool:
    return node.op == "call_function" and (
        node.target is torch.ops.prims.inductor_seeds.default
        or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()))


def _results(gm: fx.GraphModule) -> list[Any]:
    return list(next(iter(reversed(gm.graph.nodes))).args[0])


def _examples(gm: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]


def _restride(backward: fx.GraphModule, made: dict[str, Part | None]) -> None:
    """Gives backward's placeholders the strides that forward's results really have."""
    for node in backward.graph.find_nodes(op="placeholder"):
        part, fake = made.get(node.name), node.meta["val"]
        if part is not None and tuple(fake.stride()) != part.strides:
            with fake.fake_mode:
                node.meta["val"] = torch.empty_strided(part.sizes, part.strides, dtype=part.dtype, device=part.device)


class _Lines(internals.PythonWrapperCodegen):  # type: ignore[misc]
    """Keeps the lines as they are before memory is planned, and the module that each launch comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: dict[int, Any] = {}  # nodes of the scheduler, by line
        self.scratch: dict[str, int] = {}  # bytes

    def generate_kernel_call(self, *args: Any, **kwargs: Any) -> None:
        super().generate_kernel_call(*args, **kwargs)
        self.launched[id(self.lines[-1])] = internals.V.graph.scheduler.current_node

    def generate_workspace_allocation(self, ws: Any) -> None:
        size = int(ws.count) * ws.dtype.itemsize
        self.scratch[ws.get_name()] = max(size, self.scratch.get(ws.get_name(), 0))

    def generate_workspace_deallocation(self, ws: Any) -> None:
        pass

    def _generate(self, is_inference: bool) -> tuple[Any, Any]:
        return internals.ValueWithLineMap("", []), internals.ValueWithLineMap("", [])


class _Lowering(internals.GraphLowering):  # type: ignore[misc]
    def init_wrapper_code(self, *args: Any, **kwargs: Any) -> None:
        super().init_wrapper_code(*args, **kwargs)
        self.wrapper_code = _Lines()


def _lower(gm: fx.GraphModule, examples: list[Any], visible: Sequence[int], *, is_backward: bool,
           layout_opt: bool | None = None) -> Lowered:
    output = next(iter(reversed(gm.graph.nodes)))
    output.meta["user_visible_output_idxs"] = [i for i in visible if isinstance(output.args[0][i], fx.Node)]
    internals.view_to_reshape(gm)
    mode = internals.fake_tensor_prop(gm, examples)
    internals.record_original_output_strides(gm)
    with internals.V.set_fake_mode(mode):
        internals._recursive_post_grad_passes(gm, is_inference=False)
        graph = _Lowering(gm, example_inputs=examples, shape_env=mode.shape_env or ShapeEnv(), is_backward=is_backward,
                          is_inference=False, layout_opt=layout_opt)
        with internals.V.set_graph_handler(graph), internals.V.set_extern_kernel_nodes([]):
            graph.run(*examples)
            graph.codegen()
            return _Reader(graph).read()


class _Reader:
    """The lines of one lowered graph as plain data."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.parts: dict[str, Part] = {}  # buffers that are parts of another

    def read(self) -> Lowered:
        wrapper: Any = self.graph.wrapper_code
        lowered = Lowered(inputs=list(self.graph.graph_input_names), outputs=[], kernels={},
                          constants=dict(self.graph.constants), layout_opt=self.graph.layout_opt)
        externs: dict[str, Extern] = {}
        for line in wrapper.lines:
            match line:
                case internals.KernelDefinitionLine():
                    lowered.kernels[line.kernel_name] = _source(line.kernel_body)
                case internals.AllocateLine():
                    if line.node.get_name() not in self.graph.removed_buffers:
                        lowered.items.append(self._allocation(line.node))
                case internals.ReinterpretLine():
                    layout: Any = line.layout
                    self.parts[line.reused_as.get_name()] = self._part(layout.view)
                case internals.KernelCallLine():
                    lowered.items.append(self._launch(line, wrapper.launched[id(line)], lowered.kernels))
                case internals.ExternKernelOutLine():
                    lowered.items.append(self._extern(line.node, self._part(line.node.output_view or line.node)))
                case internals.ExternKernelAllocLine():
                    extern = self._extern(line.node, None)
                    if not isinstance(line.node.layout, (internals.MultiOutputLayout, internals.NoneLayout)):
                        extern.results.append(((), self._part(line.node)))
                    externs[line.node.get_name()] = extern
                    lowered.items.append(extern)
                case internals.MultiOutputLine():
                    place = tuple(int(i) for _, i in line.indices)
                    externs[line.arg_name].results.append((place, self._part(self.graph.get_buffer(line.result_name))))
                case internals.IndexPutFallbackLine():
                    lowered.items.append(self._index_put(line))
                case internals.ScatterFallbackLine():
                    lowered.items.append(self._scatter(line.node))
                case internals.UnbackedSymbolDefsLine() if not line.unbacked_bindings:
                    pass
                case _ if isinstance(line, _IGNORED):
                    pass
                case _:
                    raise Unsupported(f"Inductor's generated code contains what the fused engine cannot run: "
                                      f"{type(line).__name__} {str(line)[:200]}. Use engine=\"eager\"")
        lowered.outputs = [self._part(o) if _is_tensor(o) else None for o in self.graph.graph_outputs]
        return lowered

    def _allocation(self, node: Any) -> Allocation:
        part = self._part(node)
        return Allocation(part, int(self.graph.get_allocation_storage_size(node)) * part.dtype.itemsize)

    def _launch(self, line: Any, node: Any, kernels: dict[str, str]) -> Launch:
        if line.triton:
            named = list(line.triton_meta["signature"].items())[: len(line.call_args)]  # block sizes come after the arguments
            mutated = line.inductor_meta.get("mutated_arg_names", ())
            types = [kind for _, kind in named]
            writes = [name.startswith(("out_ptr", "in_out_ptr")) or name in mutated for name, _ in named]
        else:
            types = [str(kind) for kind in line.arg_types]
            writes = ["const" not in kind for kind in types]
        arguments = [self._argument(argument, written) for argument, written in zip(line.call_args, writes, strict=True)]
        return Launch(line.kernel_name, tuple(arguments), tuple(types), _flows(node),
                      _ATOMIC.search(kernels[line.kernel_name]) is not None, _scope(node), _over(node))

    def _argument(self, argument: Any, written: bool) -> Any:
        if not isinstance(argument, str):
            return argument if isinstance(argument, float) else int(argument)
        scratch = self.graph.wrapper_code.scratch.get(argument)
        return (self._named(argument), written) if scratch is None else Scratch(scratch)

    def _extern(self, node: Any, out: Part | None) -> Extern:
        if node.op_overload is None:
            raise Unsupported(f"Inductor calls {node.get_kernel_name()}, which is not an operator of PyTorch. Use "
                              'engine="eager"')
        tensors = [self._operand(t) for t in node.inputs]
        if hasattr(node, "unflatten_args"):
            args, kwargs = node.unflatten_args(tensors, node.constant_args)
        else:
            args, kwargs = [*tensors, *node.constant_args], {}
        kwargs = {**{k: self._operand(v) for k, v in node.kwargs.items()}, **kwargs}
        return Extern(node.op_overload, tuple(args), kwargs, out, [], node.get_name(), _scope(node))

    def _index_put(self, line: Any) -> Extern:
        node = line.node
        target, values = (self._operand(t) for t in node.inputs[:2])
        indices = [None if i is None else self._operand(i) for i in line.indices]
        return Extern(aten.index_put_.default, (target, indices, values, *node.constant_args), {}, None, [],
                      node.get_name(), _scope(node))

    def _scatter(self, node: Any) -> Extern:
        tensors = [self._operand(t) for t in node.inputs]
        source = tensors[2] if node.src_is_tensor else node.constant_args[1]
        known = {a.name for a in node.op_overload._schema.arguments}
        kwargs = {k: v for k, v in node.kwargs.items() if k in known and v is not None}
        return Extern(node.op_overload, (tensors[0], node.constant_args[0], tensors[1], source), kwargs, None, [],
                      node.get_name(), _scope(node))

    def _operand(self, node: Any) -> Any:
        if isinstance(node, (list, tuple)):
            return [self._operand(n) for n in node]
        return self._part(node) if isinstance(node, internals.IRNode) and _is_tensor(node) else node

    def _named(self, name: str) -> Part:
        if name in self.parts:
            return self.parts[name]
        if name in self.graph.graph_inputs:
            return self._part(self.graph.graph_inputs[name])
        if name in self.graph.constants:
            return _of_tensor(name, self.graph.constants[name])
        return self._part(self.graph.get_buffer(name))

    def _part(self, node: Any) -> Part:
        """The memory that a node lies in, and how it lies there."""
        layout = node.get_layout()
        while isinstance(node, (internals.TensorBox, internals.StorageBox, internals.ReinterpretView)):
            node = node.data
        if isinstance(node.layout, internals.NonOwningLayout) and layout is node.layout:
            return self._part(layout.view)
        base, offset = node.get_name(), int(layout.offset)
        if isinstance(node.layout, internals.NonOwningLayout):  # a view of a part
            outer = self._part(node.layout.view)
            base, offset = outer.memory, offset + outer.offset
        while isinstance(node.layout, internals.MutationLayoutSHOULDREMOVE):
            node = node.layout.get_buffer()
            base = node.get_name()
            layout = node.layout if isinstance(layout, internals.MutationLayoutSHOULDREMOVE) else layout
        return Part(base, layout.dtype, tuple(map(int, layout.size)), tuple(map(int, layout.stride)), offset, layout.device)


def _of_tensor(name: str, tensor: torch.Tensor) -> Part:
    return Part(name, tensor.dtype, tuple(tensor.shape), tensor.stride(), 0, tensor.device)


def _is_tensor(node: Any) -> bool:
    return not isinstance(node, (internals.NoneAsConstantBuffer, internals.ShapeAsConstantBuffer, int)) and node is not None


def _source(definition: str) -> str:
    """The source text in async_compile.cpp_pybinding(types, source) or async_compile.triton(name, source, ...)."""
    call = ast.parse(definition.strip(), mode="eval").body
    assert isinstance(call, ast.Call)
    text = ast.literal_eval(call.args[1])
    assert isinstance(text, str)
    return text


def _scope(node: Any) -> str:
    """The user's name of the module that a node of the scheduler or of the lowered graph comes from."""
    if node is None:
        return ""
    inner = [n.node for n in node.get_nodes()] if hasattr(node, "get_nodes") else [node]
    scopes = [scope_of(origin) for n in inner for origin in getattr(n, "origins", ())]
    return next((scope for scope in scopes if scope), "")


def _flows(node: Any) -> dict[str, frozenset[str]]:
    flows: dict[str, frozenset[str]] = {}
    for inner in node.get_nodes():
        read = {dep.name for dep in inner.read_writes.reads}
        sources = read.union(*(flows.get(name, frozenset()) for name in read))
        for dep in inner.read_writes.writes:
            flows[dep.name] = flows.get(dep.name, frozenset()) | sources
    return flows


def _over(node: Any) -> tuple[tuple[str, str], ...]:
    """Results that may lie over operands, by the rules of Inductor's own memory planning: one part of the kernel reads an element
    of the operand just where it writes that of the result, no part reads the operand elsewhere or later, and the part goes
    over all that the kernel goes over, because threads may share what others read."""
    parts = list(node.get_nodes())
    whole = math.prod(math.prod(size) if isinstance(size, (list, tuple)) else size for size in node.group[1])
    found: list[tuple[str, str]] = []
    for position, part in enumerate(parts):
        for read in part.read_writes.reads if isinstance(part, internals.SchedulerNode) else ():
            uses = [(later, dep) for later, other in enumerate(parts) for dep in other.read_writes.reads_and_writes()
                    if dep.name == read.name]
            if part.can_inplace(read) and math.prod(read.size) == whole and all(
                    dep == read and later <= position for later, dep in uses):
                found += [(write.name, read.name) for write in part.read_writes.writes]
    return tuple(found)


def compile_triton(kernels: dict[str, str]) -> dict[str, Any]:
    """Compiles kernels for the GPU in Inductor's processes, all at once."""
    internals.AsyncCompile.wait_pool_ready()
    started = {name: internals.AsyncCompile().triton(name, source) for name, source in kernels.items()}
    return {name: future.result() if hasattr(future, "result") else future for name, future in started.items()}


def tune(kernel: Any, launch: Launch, device: torch.device, samples: dict[str, int]) -> Binary:
    """Lets a compiled kernel choose its configuration by trying it on memory full of zeros, or of samples."""

    def operand(argument: Any) -> Any:
        if isinstance(argument, Scratch):
            return torch.zeros(argument.size, dtype=torch.uint8, device=device)
        if not isinstance(argument, tuple):
            return argument
        part = argument[0]
        return torch.empty_strided(part.sizes, part.strides, dtype=part.dtype, device=device).fill_(samples.get(part.memory, 0))

    with _disable_current_modes():  # tracing makes fake tensors
        operands = [operand(argument) for argument in launch.arguments]
        kernel.run(*operands, stream=torch.cuda.current_stream(device).cuda_stream)
    (launcher,) = kernel.launchers
    metadata = launcher.bin.metadata
    scratches = [size for size in (launcher.global_scratch, launcher.profile_scratch) if size is not None]
    if any(scratches) or getattr(metadata, "num_ctas", 1) > 1:
        raise Unsupported(f"the generated kernel {launch.kernel} needs clusters or scratch memory of Triton's, which the "
                          'fused engine does not give it. Use engine="eager"')
    _, blocks = kernel._interpret_args_grid(tuple(operands), launcher.config)
    positions = {name: i for i, name in enumerate(launcher.def_args)}
    return Binary(launcher.bin.asm["cubin"], metadata.name, (*map(int, blocks), metadata.num_warps * 32, metadata.shared),
                  (*(positions[name] for name in launcher.call_args), *[None] * len(scratches)))


def cpp_environment() -> str:
    """What compiled kernels for the CPU depend on besides their source."""
    return f"{internals.pick_vec_isa()} {torch.get_num_threads()}"


def compile_cpp(source: str) -> str:
    """Compiles kernels for the CPU with Inductor's flags, and returns the path of the shared library."""
    return str(internals.CppCodeCache.load(source)._name)
