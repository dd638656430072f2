"""AOTAutograd's joint graph of a step: forward and backward together, with the operators that eager runs."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..errors import GraphBreak, Unsupported
from ..native import _torch
from ..progress import Preparation
from .absent_gradients import without_gradients
from .capture import Capture, Operands, operands_of
from .captured import Captured
from .eager_kernels import kept_whole
from .fused.lowered import FIRST_FORM, Form
from .gathers import merge_reads
from .layouts import Layouts, extent_bytes
from .lowering import lower
from .objects import Objects, objects_of
from .shared_casts import mark_regions, share_casts
from .sizes import Sizes

if TYPE_CHECKING:
    from .fused.capture import FusedCapture

# A function that takes its arguments in a list and empties it, so that they can be freed while it runs.
Run = Callable[[list[Any]], list[Any]]


EAGER, FUSED = "eager", "fused"
ENGINES = (EAGER, FUSED)


def check_engine(name: str) -> None:
    if name not in ENGINES:
        raise ValueError(f"engine={name!r}: choose {' or '.join(map(repr, ENGINES))}")


@dataclass(frozen=True)
class JointGraph:
    """Forward and backward of a training step together, with the operators that eager runs, or with those that
    Inductor lowers."""

    module: fx.GraphModule
    primals: Sequence[Any]  # what forward reads, as fake tensors
    tangents: Sequence[Any]
    num_forward_outputs: int
    device: torch.device
    engine: str = EAGER
    objects: Objects = field(default_factory=Objects)
    operands: Operands = field(default_factory=dict)  # of the nodes as they were traced
    readers: Sequence[int] = ()  # how many nodes read each of the primals

    def capture(self, name: str, layouts: Layouts, form: Form = FIRST_FORM) -> Captured:
        """The step as a program. With eager's operators, forms differ in the gradients that backward gets."""
        if self.engine == FUSED:
            return self._fused.run(name, layouts, form)
        if form.absent:
            return self._without(form.absent).capture(name, layouts)
        return Capture(self.module, self.primals, self.tangents, self.num_forward_outputs, self.device, name, layouts,
                       operands=self.operands).run()

    def _without(self, absent: frozenset[int]) -> JointGraph:
        module, operands = without_gradients(self.module, self.operands, len(self.primals), absent)
        tangents = [None if i in absent else tangent for i, tangent in enumerate(self.tangents)]
        return replace(self, module=module, tangents=tangents, operands=operands)

    def capture_for_any_size(self, name: str, sizes: Sizes, layouts: Layouts, known_at: Sequence[int]) -> _torch.ProgramFamily:
        """The step for all sizes for which it was traced, with eager's operators.

        known_at: the numbers of the symbols at the size where the layouts were found."""
        return Capture(self.module, self.primals, self.tangents, self.num_forward_outputs, self.device, name, layouts,
                       sizes, sizes.at(known_at)).run_for_any_size()

    def fakes_of(self, tensors: Sequence[torch.Tensor]) -> list[FakeTensor]:
        """The fake tensors of the graph's inputs: tensors that share memory share it there too."""
        mode = next(p.fake_mode for p in self.primals if isinstance(p, FakeTensor))
        return [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]

    @property
    def kernel_files(self) -> list[str]:
        """Names of the files with the step's generated kernels."""
        return sorted(self._fused.compiled_as(FIRST_FORM).files) if self.engine == FUSED else []

    @property
    def seed_bytes(self) -> list[int]:
        """For each gradient that backward gets, how large it is."""
        return [extent_bytes(seed) if isinstance(seed, torch.Tensor) else 0 for seed in self.tangents]

    @functools.cached_property
    def _fused(self) -> FusedCapture:
        from .fused.capture import FusedCapture

        return FusedCapture(self.module, self.primals, self.tangents, self.num_forward_outputs, self.device)


def trace(gm: fx.GraphModule, inputs: Sequence[Any],
          runs_of: Callable[[JointGraph], tuple[Run, Run]], preparation: Preparation | None = None,
          engine: str = EAGER, found_out: Callable[[Any, fx.GraphModule], None] | None = None) -> Callable[..., Any]:
    """What torch.compile calls instead of `gm`: the forward and backward that `runs_of` makes of the joint graph.
    Without gradients there is no joint graph, and `gm` runs as it is.

    found_out: gets what AOTAutograd knows of the inputs and outputs, and the stand-in for backward."""
    merge_reads(gm)
    mark_regions(gm)
    runs: list[tuple[Run, Run]] = []
    shells: list[fx.GraphModule] = []
    phase = (preparation or Preparation()).phase

    def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int,
                  **_: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        primals, tangents = joint_inputs
        device = _device_of(primals)
        shells.extend(_shells(joint, num_fwd_outputs, len(primals)))
        operands = operands_of(joint.graph)
        readers = [len(node.users) for node in joint.graph.find_nodes(op="placeholder")[:len(primals)]]
        if engine == EAGER:
            with phase("lowering"):
                share_casts(joint, num_fwd_outputs, gm, inputs)
                lower(joint, device)
        objects = objects_of(joint, primals, num_fwd_outputs)
        runs.append(runs_of(JointGraph(joint, primals, tangents, num_fwd_outputs, device, engine, objects, operands,
                                       readers)))
        return shells[0], shells[1]

    def forward(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        if runs and found_out is not None and (context := TracingContext.try_get()) is not None:
            found_out(context.fw_metadata, shells[1])
        return _boxed(runs[0][0] if runs else lambda args: fx.Interpreter(module).boxed_run(args))

    def backward(*_: Any) -> Callable[..., Any]:
        return _boxed(runs[0][1])

    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=partition,
                            inference_compiler=forward, keep_inference_input_mutations=True,
                            decompositions=_decompositions(engine))
    try:
        with phase("joint graph"), contextlib.nullcontext() if engine == FUSED else _as_in_eager():
            return compiler(gm, inputs)
    except GuardOnDataDependentSymNode as error:
        raise GraphBreak(
            "the model cannot be captured as one graph: its shapes or branches depend on a number read out of a "
            f"tensor (.item(), int(), bool()). Change the line below or move it out of the model:{_reads(gm) or _asks(error)}"
        ) from error
    finally:
        inputs = ()  # Torch 2.11 keeps the functions above, and would keep the first batch with them.


@contextlib.contextmanager
def _as_in_eager() -> Iterator[None]:
    """Operators stay whole, and backward is traced without autocast, as loops call it outside of it."""
    with kept_whole(), functorch_config.patch(backward_pass_autocast="off"):
        yield


def _decompositions(engine: str) -> Any:
    if engine == EAGER:
        return None
    from .fused.settings import decompositions

    return decompositions()


def _reads(gm: fx.GraphModule) -> str:
    """Finds where the user's code reads numbers out of tensors."""
    nodes = gm.graph.find_nodes(op="call_method", target="item")
    return "".join("\n" + node.stack_trace.rstrip() for node in nodes if node.stack_trace)


def _asks(error: GuardOnDataDependentSymNode) -> str:
    """The line that asks for a number, if no graph has it, such as in the backward of an operator that is written in Python."""
    ours, torchs = (str(Path(module.__file__ or "").parent) + os.sep
                    for module in (sys.modules[__package__.rpartition(".")[0]], torch))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((ours, torchs))]
    return "\n" + "".join(traceback.format_list(frames[-1:])).rstrip()


def _boxed(run: Run) -> Callable[..., Any]:
    def call(args: list[Any]) -> Any:
        return run(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _device_of(primals: Sequence[Any]) -> torch.device:
    devices = {p.device for p in primals if isinstance(p, torch.Tensor)}
    accelerated = sorted((d for d in devices if d.type != "cpu"), key=str)
    if len(accelerated) > 1:
        raise Unsupported(f"the model lies on several devices ({', '.join(map(str, accelerated))}): a budget applies "
                          "to one device; compile the part on each device by itself")
    return accelerated[0] if accelerated else torch.device("cpu")


def _shells(joint: fx.GraphModule, num_forward: int, num_primals: int) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Stand-ins for forward and backward, of which AOTAutograd looks only at inputs and outputs. Forward
    saves one tensor, the handle of the step. AOTAutograd is told that it lies in an input's memory,
    so that it does not offer the handle to backward for reuse."""
    nodes = list(joint.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results = nodes[-1].args[0]
    tensor = next(n.meta["val"] for n in placeholders if isinstance(n.meta.get("val"), torch.Tensor))
    handle_meta = {"val": tensor.detach()}

    forward = fx.Graph()
    inputs = [_copy_placeholder(forward, n) for n in placeholders[:num_primals]]
    outputs = _opaque_results(forward, inputs, results[:num_forward])
    handle = forward.call_function(_stand_in, tuple(inputs))
    handle.meta.update(handle_meta)
    forward.output((*outputs, handle))

    backward = fx.Graph()
    saved = backward.placeholder("handle")
    saved.meta.update(handle_meta)
    seeds = [_copy_placeholder(backward, n) for n in placeholders[num_primals:]]
    backward.output(tuple(_opaque_results(backward, [saved, *seeds], results[num_forward:])))
    return fx.GraphModule(joint, forward), fx.GraphModule(joint, backward)


def _copy_placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.placeholder(node.name)
    copy.meta.update(node.meta)
    return copy


def _opaque_results(graph: fx.Graph, inputs: Sequence[fx.Node], results: Sequence[Any]) -> list[Any]:
    made = []
    for result in results:
        if not isinstance(result, fx.Node):
            made.append(result)
            continue
        node = graph.call_function(_stand_in, tuple(inputs))
        node.meta.update(result.meta)
        made.append(node)
    return made


def _stand_in(*_: Any) -> None:
    raise AssertionError("the executor runs instead of this graph")
