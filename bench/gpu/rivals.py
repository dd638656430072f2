"""Trains the same model and step by other means, and by Reprise at the peak of each: time against memory.

    python bench/gpu/rivals.py [--cases resnet50_96,...] [--kinds eager,...] [--dtype fp32] [--jobs 6] [--again] [-o FOLDER]

eager             the model as it is
checkpoint        torch.utils.checkpoint of every block (transformers: gradient_checkpointing_enable)
selective         the same, but results of matrix products, convolutions and attention are kept
checkpoint_graph  checkpoint, with the whole step as one CUDA graph
compile           torch.compile, at several values of torch._functorch.config.activation_memory_budget
compile_graphs    torch.compile(mode="reduce-overhead"), which records CUDA graphs, at 1.0
reprise           reprise.compile at the peak of each of these points, without CUDA graphs
reprise_graphs    the same with CUDA graphs
fused             reprise.compile(engine="fused") at the peak of each, and at 0.8 of torch.compile's least
fused_graphs      the same with CUDA graphs

Everything runs under bf16 autocast, or without autocast with --dtype fp32, and with cudnn.benchmark. Each point of the others
has a process of its own, and each engine of Reprise has one for all its points. Every process also runs eager, and samples are
taken in turns: `ratio` is the time as a multiple of eager's in the same process. The peak is the allocator's, over a step that
comes after the first few, starts without gradients and ends when backward returns. What is in the output folder is not measured
again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from children import Children, clock, command_line, compile_beside, device_alone, give
from common import CPU, DTYPES, GPU, STEPS, Training
from measure import WARM_STEPS, Row, Rows, Way, fill_one, in_turns, times
from rival_ways import Compiled, Planned, note_on, way_of

import reprise

CASES = ("resnet50_96", "resnet152_48", "densenet161_128", "convnext_base_128", "gpt2_medium_8x1024", "bert_large_32x512",
         "vit_large_64", "llama_1b_4x2048")
BUDGETS = ("1.0", "0.8", "0.6", "0.4", "0.2", "0.0")
POINTS = {"eager": ("",), "checkpoint": ("",), "selective": ("",), "checkpoint_graph": ("",), "compile": BUDGETS,
          "compile_graphs": ("1.0",)}
ENGINES = {"eager": ("reprise", "reprise_graphs"), "fused": ("fused", "fused_graphs")}
OWN = tuple(kind for kinds in ENGINES.values() for kind in kinds)
ON_CUDA_ALONE = ("checkpoint_graph", "compile_graphs", "reprise_graphs", "fused_graphs")
BELOW = 0.8  # of the least peak of torch.compile
KEYS = ("case", "dtype", "kind", "point")
MEANT = {"dtype": "bf16"}  # by rows that do not say it: they are older than the others
PLANNING_SECONDS = 3.0
COMMAND = "python bench/gpu/rivals.py"


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
        way.compile(options.lock)
    with device_alone(options.lock):
        eager.run(WARM_STEPS)
        before = {"eager_peak_bytes": eager.peak()["peak_bytes"]}
        row = measured(way, eager, options.samples, begin)
    give({"case": case, "dtype": options.dtype, "kind": kind, "point": point} | row | before | note_on(training, kind),
         command_of(case, kind, options))


def refusal(error: reprise.RepriseError) -> Row:
    return {"refused": f"{type(error).__name__}: {error}"}


def at_budget(way: Planned, eager: Way, samples: int, begin: float) -> Row:
    try:
        row, plan = measured(way, eager, samples, begin), way.training.model.plan
        return row | {"predicted_bytes": plan.peak_bytes, **({} if plan.partition is None else {"partition": plan.partition}),
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
    if options.kind == "fused":  # Both partitions are lowered now, and not while a budget is measured.
        for partition in ("far", None):
            training.model.plan.set_partition(partition)
            compile_beside(training, options.lock)
    with device_alone(options.lock):
        eager.run(WARM_STEPS)
        before = {"eager_peak_bytes": eager.peak()["peak_bytes"]}
        for _ in range(WARM_STEPS):
            training.step()
        training.model.zero_grad(set_to_none=True)
    outside = training.model.plan.outside_bytes
    for kind, point, budget in json.loads(options.targets):
        row: Row = {"case": case, "dtype": options.dtype, "kind": kind, "point": point, "budget_bytes": budget}
        try:
            way = Planned(training, budget, kind.endswith("_graphs"), outside)
        except reprise.RepriseError as error:
            row |= refusal(error)
        else:
            with device_alone(options.lock):
                row |= at_budget(way, eager, options.samples, begin)
        give(row | before, command_of(case, kind, options))
        begin = clock()


def make(case: str, options: argparse.Namespace) -> Training:
    return Training(case, options.dtype, CPU if options.cpu else GPU, tiny=options.cpu)


def command_of(case: str, kind: str, options: argparse.Namespace) -> str:
    dtype = "" if options.dtype == MEANT["dtype"] else f" --dtype {options.dtype}"
    return f"{COMMAND} --cases {case} --kinds {kind}{dtype}"


def rows_in(folder: Path, again: bool = False) -> Rows:
    return Rows(folder, KEYS, again, MEANT)


def targets_of(rows: Rows, case: str, dtype: str, kinds: list[str],
               points: list[str] | None = None) -> list[tuple[str, str, int]]:
    """What Reprise has to be measured at: the peaks of the others, and below torch.compile's, where it was not yet; or of these
    the `points` alone."""
    wanted: list[tuple[str, str, int]] = []

    def want(kind: str, point: str, budget: int) -> None:
        known = rows.find(case=case, dtype=dtype, kind=kind, point=point)
        if (known is None or known["budget_bytes"] != budget) and (points is None or point in points):
            wanted.append((kind, point, budget))

    compiled = []
    for other in rows.rows:
        if other["case"] != case or other["kind"] in OWN or "peak_bytes" not in other:
            continue
        if rows.find(case=case, dtype=dtype, kind=other["kind"], point=other["point"]) is not other:
            continue  # of another type, machine or version
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
    """The others at once; then Reprise, whose budgets are known by then."""
    extra = ["--samples", str(options.samples), "--dtype", options.dtype, *(["--cpu"] if options.cpu else [])]

    def other(way: tuple[str, str]) -> int:
        kind, point = way
        return fill_one(children, rows, {"case": case, "dtype": options.dtype, "kind": kind, "point": point},
                        ["--one", case, "--kind", kind, "--point", point, *extra], options.seconds)

    failed = children.each(other, wanted)
    for engine, kinds in ENGINES.items():
        targets = targets_of(rows, case, options.dtype, [kind for kind in own_kinds if kind in kinds], options.at)
        if not targets:
            continue
        error = children.run(["--one", case, "--kind", engine, "--targets", json.dumps(targets), *extra],
                             options.own_seconds, rows.add)
        if error:
            failed += 1
            print(f"{case}: {engine}: {error}", flush=True)
    return failed


def cases_of(options: argparse.Namespace) -> list[str]:
    """A network whose parameters are in bf16 is measured in no other type."""
    bf16_alone = {name for name, step in STEPS.items() if step.precision == "bf16"}
    return [case for case in options.cases.split(",") if options.cpu or options.dtype == "bf16" or case not in bf16_alone]


def run(options: argparse.Namespace) -> int:
    rows = rows_in(options.output, options.again)
    kinds = [k for k in options.kinds.split(",") if not (options.cpu and k in ON_CUDA_ALONE)]
    wanted = {case: [(k, p) for k in kinds for p in POINTS.get(k, ())
                     if rows.find(case=case, dtype=options.dtype, kind=k, point=p) is None
                     and (k != "compile" or p in options.points)] for case in cases_of(options)}
    own_kinds = [k for k in kinds if k in OWN]
    with Children(__file__, options.jobs, options.lock) as children:
        failed = children.each(lambda case: run_case(children, rows, case, wanted[case], own_kinds, options), wanted)
    return 1 if failed else 0


def main() -> int:
    parser = command_line(__doc__, "rivals-cuda", CASES, 120, samples=8)
    parser.add_argument("--kinds", default=",".join([*POINTS, *OWN]))
    parser.add_argument("--dtype", choices=DTYPES, help="bf16 by default; with --cpu, where autocast may take seconds, fp32")
    parser.add_argument("--points", default=",".join(BUDGETS), type=lambda text: text.split(","), help="of compile")
    parser.add_argument("--at", type=lambda text: text.split(","), help="points of Reprise, such as 'compile 1.0,eager'")
    parser.add_argument("--own-seconds", type=float, default=420, help="for all points of Reprise")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--point", default="", help=argparse.SUPPRESS)
    parser.add_argument("--targets", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtype = options.dtype or ("fp32" if options.cpu else MEANT["dtype"])
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
