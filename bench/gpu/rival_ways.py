"""Ways to run a training step, for comparisons: checkpoints, torch.compile, and Reprise at a budget."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._functorch.config
from children import compile_beside
from common import Training
from measure import WARM_STEPS, AsCompiled, Way
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
KEPT = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default,
        aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_flash_attention_for_cpu.default}
BLOCKS = ("Bottleneck", "DenseLayer", "ConvNextLayer")  # classes, of networks whose library checkpoints nothing


def keep_costly(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


class Blocks(Way):
    """Every block of the network is a checkpoint."""

    def __init__(self, training: Training, **options: Any) -> None:
        super().__init__(training)
        self.options = {"use_reentrant": False} | options
        self.network = training.model.network
        self.by_library = getattr(self.network, "supports_gradient_checkpointing", False)
        self.blocks = [] if self.by_library else [b for b in self.network.modules() if type(b).__name__ in BLOCKS]
        if not self.by_library and not self.blocks:
            raise ValueError(f"{type(self.network).__name__}: no block of it is known; name its class in BLOCKS")

    def begin(self) -> None:
        if self.by_library:
            self.network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(self.options))
        for block in self.blocks:
            block.forward = functools.partial(checkpoint, type(block).forward.__get__(block), **self.options)

    def end(self) -> None:
        if self.by_library:
            self.network.gradient_checkpointing_disable()
        for block in self.blocks:
            del block.forward


class Selective(Blocks):
    def __init__(self, training: Training) -> None:
        super().__init__(training, context_fn=functools.partial(create_selective_checkpoint_contexts, keep_costly))


class GraphedBlocks(Blocks):
    """Forward and backward with checkpoints, recorded as one CUDA graph whose inputs stay in place. The random state cannot be
    restored while a graph is recorded, so dropout draws other masks in the second run."""

    def __init__(self, training: Training) -> None:
        super().__init__(training, preserve_rng_state=False)
        self.graph: Any = None
        self.gradients: list[Any] = []

    def begin(self) -> None:
        if self.graph is None:
            self._record()
        for parameter, gradient in zip(self.training.model.parameters(), self.gradients, strict=True):
            parameter.grad = gradient

    def end(self) -> None:
        pass

    def step(self) -> None:
        self.graph.replay()

    def _record(self) -> None:
        super().begin()
        stream, device = torch.cuda.Stream(), self.training.device
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                super().step()
        torch.cuda.current_stream(device).wait_stream(stream)
        self.training.model.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().step()
        self.gradients = [parameter.grad for parameter in self.training.model.parameters()]
        super().end()


class Compiled(Way):
    def __init__(self, training: Training, budget: str, mode: str | None = None) -> None:
        super().__init__(training)
        torch._functorch.config.activation_memory_budget = float(budget)
        # On the CPU, this backend chooses what is recomputed as torch.compile does, but generates no code.
        backend = "inductor" if training.device.type == "cuda" else "aot_eager_decomp_partition"
        self.call = torch.compile(training.model, backend=backend, mode=mode).__call__

    def step(self) -> None:
        self.training.step(self.call)

    def compile(self, lock: Path | None) -> None:
        """The first step, beside others, where cuDNN cannot choose between algorithms by their times. What it takes without
        doing so it keeps, also when it is told to choose later; but apart for deterministic steps and for others."""
        cudnn = torch.backends.cudnn
        cudnn.benchmark, cudnn.deterministic = False, True
        compile_beside(self.training, lock, self.call)
        cudnn.benchmark, cudnn.deterministic = True, False


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """What torch.compile would record as a CUDA graph, or replay, runs as it is."""
    from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

    def run(manager: Any, inputs: Any, function_id: Any) -> Any:
        return manager.ids_to_funcs[function_id].model(inputs)

    with mock.patch.object(CUDAGraphTreeManager, "_run", run):
        yield


class CompiledGraphs(Compiled):
    """The graphs are recorded in the first steps of `run`. Before that cuDNN tries algorithms, which it cannot do while a graph
    is recorded; and outside the pool of the graphs, which would keep the memory for it."""

    def __init__(self, training: Training, budget: str) -> None:
        super().__init__(training, budget, mode="reduce-overhead")
        self.algorithms_known = False

    def compile(self, lock: Path | None) -> None:
        with unrecorded():
            super().compile(lock)

    def begin(self) -> None:
        if not self.algorithms_known:
            with unrecorded():
                self.step()
            self.algorithms_known = True

    def step(self) -> None:
        """Gradients lie in the pool, and are gone before the next step."""
        torch.compiler.cudagraph_mark_step_begin()
        super().step()


class Planned(AsCompiled):
    """Reprise at a budget. One capture serves all budgets. The plan is made here, without the device, except with CUDA graphs,
    where it is made when they are recorded. `outside` is the memory beside the step."""

    def __init__(self, training: Training, budget: int, graphs: bool, outside: int) -> None:
        super().__init__(training)
        plan = training.model.plan
        plan.set_cuda_graphs(graphs)
        plan.set_budget(budget)
        if not graphs:
            plan.plan_ahead(outside)

    def release(self) -> None:
        self.training.model.plan.release_graphs()


def way_of(training: Training, kind: str, point: str) -> Way:
    if kind in ("compile", "compile_graphs"):
        return (Compiled if kind == "compile" else CompiledGraphs)(training, point)
    return {"eager": Way, "checkpoint": Blocks, "selective": Selective, "checkpoint_graph": GraphedBlocks}[kind](training)


def was_skipped() -> bool:
    """Whether torch.compile left out a graph that it should have recorded."""
    from torch._dynamo.utils import counters

    return counters["inductor"]["cudagraph_skips"] > 0


def note_on(training: Training, kind: str) -> dict[str, str]:
    drops = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in training.model.modules())
    if kind == "checkpoint_graph" and drops:
        return {"note": "dropout draws other masks in the second run: its gradients are wrong"}
    if kind == "compile_graphs" and was_skipped():
        return {"note": "not all of it was recorded as CUDA graphs"}
    norms = any(isinstance(m, torch.nn.BatchNorm2d) for m in training.model.modules())
    if kind in ("checkpoint", "selective", "checkpoint_graph") and norms:
        return {"note": "running statistics move twice in a step"}
    return {}
