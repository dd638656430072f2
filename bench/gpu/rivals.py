"""Trains the same model and step by other means, and by Reprise at the peak of each: time against memory.

    scripts/python.sh bench/gpu/rivals.py [--cases resnet50_96,...] [--kinds checkpoint,...] [--jobs 6] [--again] [-o FOLDER]

eager             the model as it is
checkpoint        torch.utils.checkpoint of every block (transformers: gradient_checkpointing_enable)
selective         the same, but results of matrix products, convolutions and attention are kept
checkpoint_graph  checkpoint, with the whole step as one CUDA graph
compile           torch.compile, at several values of torch._functorch.config.activation_memory_budget
reprise           reprise.compile at the peak of each of these points, without CUDA graphs
reprise_graphs    the same with CUDA graphs
fused             reprise.compile(engine="fused") at the peak of each, and at 0.8 of torch.compile's least
fused_graphs      the same with CUDA graphs

Everything runs under bf16 autocast with cudnn.benchmark. Each point of the others has a process of its own, and each engine of
Reprise has one for all its points. Every process also runs eager, and samples are taken in turns: `ratio` is the time as a
multiple of eager's in the same process. The peak is the allocator's, over a step that comes after the first few, starts without
gradients and ends when backward returns. What is in the output folder is not measured again.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from typing import Any

import torch
import torch._functorch.config
from children import Children, clock, command_line, compile_beside, device_alone, give
from common import CPU, GPU, Training
from measure import WARM_STEPS, AsCompiled, Row, Rows, Way, fill_one, in_turns, times
from models.resnet import Bottleneck
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import reprise

CASES = ("resnet50_96", "resnet152_48", "gpt2_medium_8x1024", "bert_large_32x512", "vit_large_64", "llama_1b_4x2048")
BUDGETS = ("1.0", "0.8", "0.6", "0.4", "0.2", "0.0")
POINTS = {"eager": ("",), "checkpoint": ("",), "selective": ("",), "checkpoint_graph": ("",), "compile": BUDGETS}
ENGINES = {"eager": ("reprise", "reprise_graphs"), "fused": ("fused", "fused_graphs")}
OWN = tuple(kind for kinds in ENGINES.values() for kind in kinds)
ON_CUDA_ALONE = ("checkpoint_graph", "reprise_graphs", "fused_graphs")
BELOW = 0.8  # The fused engine is also measured at this share of the least peak of torch.compile.
KEYS = ("case", "kind", "point")
PLANNING_SECONDS = 3.0
COMMAND = "python bench/gpu/rivals.py"

aten = torch.ops.aten
KEPT = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default,
        aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_flash_attention_for_cpu.default}


def keep_costly(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


class Blocks(Way):
    """Every block of the network is a checkpoint."""

    def __init__(self, training: Training, **options: Any) -> None:
        super().__init__(training)
        self.options = {"use_reentrant": False} | options
        self.network = training.model.network
        self.by_library = hasattr(self.network, "gradient_checkpointing_enable")
        self.blocks = [block for block in self.network.modules() if isinstance(block, Bottleneck)]
        if not self.by_library and not self.blocks:
            raise ValueError(f"{type(self.network).__name__}: no block of it is known; name its class in Blocks")

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
    def __init__(self, training: Training, budget: str) -> None:
        super().__init__(training)
        torch._functorch.config.activation_memory_budget = float(budget)
        # On the CPU, this backend chooses what is recomputed as torch.compile does, but generates no code.
        backend = "inductor" if training.device.type == "cuda" else "aot_eager_decomp_partition"
        self.call = torch.compile(training.model, backend=backend).__call__

    def step(self) -> None:
        self.training.step(self.call)


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
    if kind == "compile":
        return Compiled(training, point)
    return {"eager": Way, "checkpoint": Blocks, "selective": Selective, "checkpoint_graph": GraphedBlocks}[kind](training)


def note_on(training: Training, kind: str) -> dict[str, str]:
    drops = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in training.model.modules())
    if kind == "checkpoint_graph" and drops:
        return {"note": "dropout draws other masks in the second run: its gradients are wrong"}
    norms = any(isinstance(m, torch.nn.BatchNorm2d) for m in training.model.modules())
    if kind in ("checkpoint", "selective", "checkpoint_graph") and norms:
        return {"note": "running statistics move twice in a step"}
    return {}


def measured(way: Way, eager: Way, samples: int, begin: float) -> Row:
    way.run(WARM_STEPS)
    row: Row = way.peak()
    row["set_up_seconds"] = round(clock() - begin, 1)
    found = in_turns({"way": way, "eager": eager}, samples)
    return row | times(found["way"], found["eager"])


def rival(case: str, kind: str, point: str, options: argparse.Namespace) -> None:
    begin = clock()
    training = make(case, options)
    eager, way = Way(training), way_of(training, kind, point)
    if isinstance(way, Compiled):
        torch.backends.cudnn.benchmark = False  # It chooses algorithms by their times, and other processes are still running.
        compile_beside(training, options.lock, way.call)
        torch.backends.cudnn.benchmark = True
    with device_alone(options.lock):
        eager.run(WARM_STEPS)
        before = {"eager_peak_bytes": eager.peak()["peak_bytes"]}
        row = measured(way, eager, options.samples, begin)
    give({"case": case, "kind": kind, "point": point} | row | before | note_on(training, kind),
         f"{COMMAND} --cases {case} --kinds {kind}")


def refusal(error: reprise.RepriseError) -> Row:
    return {"refused": f"{type(error).__name__}: {error}"}


def at_budget(way: Planned, eager: Way, samples: int, begin: float) -> Row:
    try:
        row, plan = measured(way, eager, samples, begin), way.training.model.plan
        return row | {"predicted_bytes": plan.peak_bytes,
                      "recompute_percent": round(100 * plan.recompute_ns / max(1, plan.time_ns), 2)}
    except reprise.RepriseError as error:
        return refusal(error)
    finally:
        way.release()  # The pool of CUDA graphs is as large as the budget.


def own(case: str, options: argparse.Namespace) -> None:
    """Measures Reprise. `--targets` has the kind, the point and the budget of each row, and `--kind` names the engine."""
    begin = clock()
    training = make(case, options)
    eager = Way(training)
    reprise.compile(training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS, engine=options.kind)
    compile_beside(training, options.lock)
    with device_alone(options.lock):
        eager.run(WARM_STEPS)
        before = {"eager_peak_bytes": eager.peak()["peak_bytes"]}
        for _ in range(WARM_STEPS):
            training.step()
        training.model.zero_grad(set_to_none=True)
    outside = training.model.plan.outside_bytes
    for kind, point, budget in json.loads(options.targets):
        row: Row = {"case": case, "kind": kind, "point": point, "budget_bytes": budget}
        try:
            way = Planned(training, budget, kind.endswith("_graphs"), outside)
        except reprise.RepriseError as error:
            row |= refusal(error)
        else:
            with device_alone(options.lock):
                row |= at_budget(way, eager, options.samples, begin)
        give(row | before, f"{COMMAND} --cases {case} --kinds {kind}")
        begin = clock()


def make(case: str, options: argparse.Namespace) -> Training:
    """The training of a case. On the CPU it runs without autocast, which may take seconds there for a tiny step."""
    return Training(case, "fp32", CPU, tiny=True) if options.cpu else Training(case, "bf16", GPU)


def targets_of(rows: Rows, case: str, kinds: list[str]) -> list[tuple[str, str, int]]:
    """The budgets at which Reprise still has to be measured: the peaks of the others, and one below those of torch.compile."""
    wanted: list[tuple[str, str, int]] = []

    def want(kind: str, point: str, budget: int) -> None:
        known = rows.find(case=case, kind=kind, point=point)
        if known is None or known["budget_bytes"] != budget:
            wanted.append((kind, point, budget))

    compiled = []
    for other in rows.rows:
        if other["case"] != case or other["kind"] in OWN or "peak_bytes" not in other:
            continue
        if rows.find(case=case, kind=other["kind"], point=other["point"]) is not other:
            continue  # The row was measured on another machine or with another version.
        if other["kind"] == "compile":
            compiled.append(other["peak_bytes"])
        for kind in kinds:
            want(kind, f"{other['kind']} {other['point']}".strip(), other["peak_bytes"])
    for kind in ENGINES["fused"]:
        if kind in kinds and compiled:
            want(kind, "below compile", int(BELOW * min(compiled)))
    return sorted(wanted)


def run_case(children: Children, rows: Rows, case: str, wanted: list[tuple[str, str]], own_kinds: list[str],
             options: argparse.Namespace) -> int:
    """Measures the others first, and then Reprise, whose budgets are known by then."""
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]

    def other(way: tuple[str, str]) -> int:
        kind, point = way
        return fill_one(children, rows, {"case": case, "kind": kind, "point": point},
                        ["--one", case, "--kind", kind, "--point", point, *extra], options.seconds)

    failed = children.each(other, wanted)
    for engine, kinds in ENGINES.items():
        targets = targets_of(rows, case, [kind for kind in own_kinds if kind in kinds])
        if not targets:
            continue
        error = children.run(["--one", case, "--kind", engine, "--targets", json.dumps(targets), *extra],
                             options.own_seconds, rows.add)
        if error:
            failed += 1
            print(f"{case}: {engine}: {error}", flush=True)
    return failed


def run(options: argparse.Namespace) -> int:
    rows = Rows(options.output, KEYS, options.again)
    kinds = [k for k in options.kinds.split(",") if not (options.cpu and k in ON_CUDA_ALONE)]
    wanted = {case: [(k, p) for k in kinds for p in POINTS.get(k, ()) if rows.find(case=case, kind=k, point=p) is None
                     and (k != "compile" or p in options.points)] for case in options.cases.split(",")}
    own_kinds = [k for k in kinds if k in OWN]
    with Children(__file__, options.jobs, options.lock) as children:
        failed = children.each(lambda case: run_case(children, rows, case, wanted[case], own_kinds, options), wanted)
    return 1 if failed else 0


def main() -> int:
    parser = command_line(__doc__, "rivals-cuda", CASES, 120, samples=8)
    parser.add_argument("--kinds", default=",".join([*POINTS, *OWN]))
    parser.add_argument("--points", default=",".join(BUDGETS), type=lambda text: text.split(","),
                        help="the memory budgets of torch.compile")
    parser.add_argument("--own-seconds", type=float, default=420, help="the time limit for all points of Reprise")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--point", default="", help=argparse.SUPPRESS)
    parser.add_argument("--targets", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if not options.one:
        return run(options)
    if options.targets:
        own(options.one, options)
    else:
        rival(options.one, options.kind, options.point, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
