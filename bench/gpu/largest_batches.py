"""The largest batches of the networks of Kusumoto et al. inside several budgets, plain and planned.

    scripts/python.sh bench/gpu/largest_batches.py [--cases vgg19_64,...] [--budgets 16GiB,40GiB,80GiB] [--jobs 7] [--again]
        [-o FOLDER]

reprise.preflight predicts these batches from measured operators, in one process for each budget. Then a few steps are trained
at each of them, plain or planned, in a process of its own, and `measured_bytes` is their peak. `--predict` leaves the training
out. Everything is in fp32.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from captured import PLANNING_SECONDS
from children import Children, clock, command_line, compile_beside, device_alone, give, operators_alone
from common import CPU, GPU, Training
from kusumoto import PAPER
from measure import AsCompiled, Row, Rows, Way, fill_one

import reprise
from reprise import planning
from reprise.api.preflight import question

KEYS = ("case", "budget_bytes")
COMMAND = "python bench/gpu/largest_batches.py"


def fit_row(fit: Any) -> Row | None:
    return fit and {"batch": fit.batch, "predicted_bytes": fit.peak_bytes,
                    "predicted_ms": fit.time_ns and round(fit.time_ns / 1e6, 3)}


def predict(name: str, options: argparse.Namespace) -> None:
    with device_alone(options.lock):
        training = Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu)
    asked = question(training.model, (training.args, training.kwargs), options.budget, device=None, optimizer=None, reserve=0,
                     planner=planning.AUTO, planning_seconds=PLANNING_SECONDS, profile="measure")
    begin = clock()
    with operators_alone(options.lock):  # Preflight uses the device only to measure operators.
        found = asked.answer(largest=True)
    row: Row = {"case": name, "budget_bytes": options.budget, "plain": fit_row(found.largest_plain),
                "planned": fit_row(found.largest_planned), "seconds": round(clock() - begin, 1)}
    give(row, f"{COMMAND} --cases {name}")


def train(name: str, options: argparse.Namespace) -> None:
    """Trains a few real steps at a batch size that was predicted."""
    kind, batch, budget = options.at.split(":")
    training = Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu, batch=int(batch))
    try:
        if kind == "planned":
            reprise.compile(training.model, int(budget), cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
            compile_beside(training, options.lock)
        way = AsCompiled(training) if kind == "planned" else Way(training)
        with device_alone(options.lock):
            way.run(1)  # In the first step, libraries allocate memory that they keep.
            peak = way.peak()["peak_bytes"]
            if kind == "planned":  # Reprise measures the first steps of a plan itself, and resets the counter.
                peak = max(peak, training.model.plan.measured_peak_bytes)
        found: Row = {"measured_bytes": peak}
    except (reprise.RepriseError, torch.OutOfMemoryError) as error:
        found = {"refused": f"{type(error).__name__}: {error}"[:600]}
    give({"case": name, kind: found}, f"{COMMAND} --cases {name}")


def train_both(children: Children, rows: Rows, row: Row, options: argparse.Namespace, extra: list[str]) -> int:
    failed = 0
    for kind in ("plain", "planned"):
        fit = row[kind]
        if not fit or {"measured_bytes", "refused"} & fit.keys():
            continue
        found: list[Row] = []
        at = f"{kind}:{fit['batch']}:{row['budget_bytes']}"
        error = children.run(["--one", row["case"], "--at", at, *extra], options.seconds, found.append)
        if error:
            failed += 1
            print(f"{row['case']}, {at}: {error}", flush=True)
        else:
            row = row | {kind: fit | found[0][kind]}
            rows.add(row)
    return failed


def run(options: argparse.Namespace) -> int:
    rows = Rows(options.output, KEYS, options.again)
    extra = ["--cpu"] if options.cpu else []

    def one(at: tuple[str, int]) -> int:
        key = dict(zip(KEYS, at, strict=True))
        if rows.find(**key) is None:
            fill_one(children, rows, key, ["--one", at[0], "--budget", str(at[1]), *extra], options.seconds)
        row = rows.find(**key)
        return 1 if row is None else 0 if options.predict else train_both(children, rows, row, options, extra)

    with Children(__file__, options.jobs, options.lock) as children:
        cases = options.cases.split(",")
        return 1 if children.each(one, [(case, budget) for budget in options.budgets for case in cases]) else 0


def main() -> int:
    parser = command_line(__doc__, "largest-batches-cuda", PAPER, 300)
    parser.add_argument("--budgets", default="16GiB,40GiB,80GiB",
                        type=lambda text: [reprise.parse_bytes(part) for part in text.split(",")])
    parser.add_argument("--predict", action="store_true", help="only predict, and do not train at the predicted sizes")
    parser.add_argument("--budget", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.one:
        return run(options)
    (train if options.at else predict)(options.one, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
