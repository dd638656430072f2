"""Where the time goes from reprise.compile, or torch.compile, to the end of the second step, with empty and full caches.

    python bench/first_steps.py [--device cuda] [--cases resnet50,unrolled] [--engine eager fused]
                                [--traced eager fused] [--rival inductor aot_eager] [--share 0.5]
                                [--begins compile import] [--clock wall|processor] [-o FILE]

Each case runs in each way in two processes that share cache folders of their own, also for Inductor and Triton: the first one
has to measure, to plan and to generate kernels, and the second one finds the results in the caches. In each process a plain step
runs first. The clock begins after the modules of torch.compile were imported ("compile"), or before, in a process that has made
no optimizer yet ("import"): PyTorch imports Dynamo when the first optimizer is made, and transformers imports it, too.
"Importing" is what importing takes from there on. "Rest" is what is not preparation: the two steps themselves, and torch's
guards. With --traced, steps are not looked for in the cache, but traced in every process. For torch.compile itself, with the
backend that --rival names, everything but the call that compiles the model is counted as rest.

On a machine that does other work too, --clock processor counts the time that the main thread gets. pip compiles the modules that
it installs. Where the bytecode of torch is missing (it then takes four times as long to import), one more process before the
others writes it to a folder of the benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from two_steps import BEGINS, CLOCKS, PHASES, Row, Way, budget_of, cases, run

CACHES = ("REPRISE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def head_text() -> str:
    return (f"{'case':<14}{'way':<25}{'begins':<9}{'cache':<6}{'ops':>6}{'total':>8}" +
            "".join(f"  {phase}" for phase in PHASES) + "   rest")


def row_text(row: Row) -> str:
    way = f"{row['way']} {row.get('engine') or row['backend']}"
    known = {phase: f"{row['phases'][phase]:.2f}" for phase in PHASES if phase in row["phases"]}
    phases = "".join(f"{known.get(phase, ''):>{len(phase) + 2}}" for phase in PHASES)
    return f"{row['case']:<14}{way:<25}{row['begins']:<9}{row['caches']:<6}{row.get('ops', ''):>6}" \
           f"{row['second_s']:>8.1f}{phases}{row['rest_s']:>7.2f}"


def ways_of(options: argparse.Namespace) -> list[Way]:
    engines = options.engine or ([] if options.rival or options.traced else ["eager"])
    return [*(("engine", name) for name in engines), *(("traced", name) for name in options.traced),
            *(("rival", name) for name in options.rival)]


def has_bytecode() -> bool:
    return Path(importlib.util.cache_from_source(torch.__file__)).exists()


@contextlib.contextmanager
def own_bytecode() -> Iterator[dict[str, str]]:
    """What processes need to find and to write bytecode in a folder that goes with this context."""
    with tempfile.TemporaryDirectory() as folder:
        yield {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def rows_of(command: list[str], more: Mapping[str, str] | None = None) -> Iterator[Row]:
    """One row with empty caches, and one with what the first run has left in them. more: of the environment."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {name: str(Path(folder) / name.lower()) for name in CACHES} | dict(more or {})
        for caches in ("empty", "full"):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
            yield {"caches": caches, **json.loads(done.stdout.splitlines()[-1])}


def rows_with_bytecode(command: list[str]) -> Iterator[Row]:
    if has_bytecode():
        yield from rows_of(command)
        return
    with own_bytecode() as more:
        next(rows_of(command, more))
        yield from rows_of(command, more)


def write(path: Path, options: argparse.Namespace, rows: list[Row]) -> None:
    on_gpu = options.device.type == "cuda"
    asked = "".join(f" --{option} {' '.join(names)}" for option in ("engine", "traced", "rival")
                    if (names := getattr(options, option)))
    path.write_text(json.dumps({
        "command": f"python bench/first_steps.py --device {options.device} --cases {options.cases}{asked}"
                   f"{'' if options.begins == ['compile'] else ' --begins ' + ' '.join(options.begins)}"
                   f"{'' if options.clock == 'wall' else f' --clock {options.clock}'}",
        "machine": torch.cuda.get_device_name(options.device) if on_gpu else platform.machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "torch": torch.__version__,
        "bytecode": "installed" if has_bytecode() else "written before", "clock": options.clock,
        "results": rows}, indent=1) + "\n")


def measure(options: argparse.Namespace) -> int:
    """Measures every way. If one fails, for example because there is no plan, the others are still measured."""
    print(head_text(), flush=True)
    rows, failed = [], 0
    budgets: dict[str, str] = {}
    for name, begins, (option, way) in itertools.product(options.cases.split(","), options.begins, ways_of(options)):
        one = [sys.executable, __file__, "--case", name, "--device", str(options.device), "--share", str(options.share)]
        try:
            if name not in budgets:
                asked = subprocess.run([*one, "--only-budget"], stdout=subprocess.PIPE, check=True, text=True)
                budgets[name] = asked.stdout.strip()
            for row in rows_with_bytecode([*one, "--budget", budgets[name], "--begins", begins, "--clock", options.clock,
                                           f"--{option}", way]):
                rows.append(row)
                print(row_text(row), flush=True)
        except subprocess.CalledProcessError as error:
            failed = 1
            print(f"{name}, --{option} {way}: ended with {error.returncode}", file=sys.stderr, flush=True)
        if options.output:
            write(options.output, options, rows)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--cases", help="by default resnet50 and gpt2_medium on a GPU, and resnet50_96 on the CPU")
    parser.add_argument("--engine", nargs="+", choices=("eager", "fused"), default=[],
                        help="engines of reprise.compile; by default eager, or none if there is another way")
    parser.add_argument("--traced", nargs="+", choices=("eager", "fused"), default=[],
                        help="engines of reprise.compile, with steps that are traced in every process")
    parser.add_argument("--rival", nargs="+", choices=("inductor", "aot_eager"), default=[], help="backends of torch.compile")
    parser.add_argument("--share", type=float, default=0.5, help="the budget, as a share of a plain step's peak")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--begins", nargs="+", choices=BEGINS, default=["compile"], help="where the clock begins")
    parser.add_argument("--case", help="run only this case, in the first way, in this process, and print JSON")
    parser.add_argument("--budget", type=int, help="of that case")
    parser.add_argument("--only-budget", action="store_true", help="print the budget of that case and nothing else")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    on_gpu = options.device.type == "cuda"
    options.cases = options.cases or ("resnet50,gpt2_medium" if on_gpu else "resnet50_96")
    if options.only_budget:
        print(budget_of(cases(on_gpu)[options.case], options.device, options.share))
        return 0
    if options.case:
        print(json.dumps(run(cases(on_gpu)[options.case], options.device, options.budget, ways_of(options)[0], options.clock,
                             options.begins[0])))
        return 0
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
