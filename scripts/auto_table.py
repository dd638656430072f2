#!/usr/bin/env python3
"""Plans the steps of data/steps with planner auto and writes the two tables of docs/algorithms/auto.md.

    make build && python3 scripts/auto_table.py [--command PATH]

Budgets are shares of the peak without recomputation, parameters and inputs set aside in both. The numbers are the same
on every machine: work is limited by a count.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "algorithms" / "auto.md"
FIRST_STEPS = ["vgg19_64", "unet_8x572", "resnet50_96", "resnet152_48", "gpt2_medium_8x1024", "densenet161_32"]
MORE_STEPS = ["googlenet_256", "pspnet_2", "bert_large_32x512", "vit_large_64", "llama_1b_4x2048", "gpt_420_layers"]
SHARES = [90, 80, 70, 60, 50, 40, 30, 20]
FEW_SHARES = [80, 50, 30]
LITTLE_WORK = 40_000_000
TECHNIQUES = ["cuts", "prefix-cuts", "nesting", "aimed-prices", "planners", "reordering", "local-search", "incremental"]
INFEASIBLE = 1


class Step:
    def __init__(self, command: Path, name: str) -> None:
        self.command, self.path = command, ROOT / "data" / "steps" / f"{name}.graph.json"
        graph = json.loads(self.path.read_text())
        self.title = graph["name"]
        values = graph["values"]
        self.resident = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
        plain = self.plan("1000TB", "--planner", "none")
        self.time, self.needed = plain["time_ns"], plain["peak_bytes"] - self.resident

    def plan(self, budget: str, *more: str) -> dict:
        call = [self.command, "plan", self.path, "--budget", budget, "--json", *more]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode not in (0, INFEASIBLE):
            sys.exit(done.stderr.strip() or f"reprise plan exited with {done.returncode}")
        return json.loads(done.stdout)

    def at(self, share: int, *more: str) -> dict:
        return self.plan(str(self.resident + self.needed * share // 100), *more)

    def percent(self, nanoseconds: int | None) -> str:
        return "–" if nanoseconds is None else f"{100 * nanoseconds / self.time:.2f}"

    def gibibytes(self, answer: dict) -> str:
        return f"{(answer['peak_bytes'] - self.resident) / 2**30:.2f}"


def reached(step: Step) -> list[str]:
    plans, bounds = [], []
    for share in SHARES:
        answer = step.at(share)
        bound = answer["lower_bound_ns"]
        mark = " *r*" if answer["reordered"] and answer["recompute_ns"] is not None else ""
        plans.append(step.percent(answer["recompute_ns"]) + mark)
        bounds.append(step.percent(None if bound is None else bound - step.time))
    least = step.plan("min")
    peak = f"{step.needed / 2**30:.2f}"
    return [f"| {step.title} | {peak} | {' | '.join(plans)} | {step.gibibytes(least)} |",
            f"| <sub>bound</sub> | | {' | '.join(f'<sub>{b}</sub>' for b in bounds)} | |"]


def ablation(step: Step) -> list[str]:
    rows = []
    for name in ["", *TECHNIQUES]:
        more = ["--work", str(LITTLE_WORK), "--without", "bound"] + (["--without", name] if name else [])
        cells = [step.percent(step.at(share, *more)["recompute_ns"]) for share in FEW_SHARES]
        rows.append(f"{' / '.join(cells)}; {step.gibibytes(step.plan('min', *more))}")
    return rows


def write(name: str, table: list[str]) -> None:
    """Between the markers of that name."""
    text = PAGE.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda found: found[1] + "\n".join(table) + "\n" + found[2], text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    command = parser.parse_args().command
    steps = [Step(command, name) for name in FIRST_STEPS]
    more = [Step(command, name) for name in MORE_STEPS]
    head = " | ".join(f"{share} %" for share in SHARES)
    write("reached", [f"| step | GiB | {head} | least GiB |", "|---" * (len(SHARES) + 3) + "|",
                      *(row for step in [*steps, *more] for row in reached(step))])
    columns = [ablation(step) for step in steps]
    names = ["everything", *(f"without {name}" for name in TECHNIQUES)]
    write("ablation", [f"| | {' | '.join(step.title.split(',')[0] for step in steps)} |", "|---" * (len(steps) + 1) + "|",
                       *(f"| {name} | {' | '.join(row)} |" for name, *row in zip(names, *columns, strict=True))])


if __name__ == "__main__":
    main()
