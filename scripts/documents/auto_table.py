#!/usr/bin/env python3
"""Plans the steps of data/steps with planner auto and writes the tables of docs/algorithms/auto.md.

    make build && python3 scripts/documents/auto_table.py [--command PATH] [--steps NAME,...]

With --steps, only these are planned; the rows of the others stay as they are.

A budget is a share of the peak without recomputation; parameters and inputs are left out of both. The numbers are the
same on every machine, because the planner's work is limited by a count and not by a clock.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms" / "auto.md"
FIRST_STEPS = ["vgg19_64", "unet_8x572", "resnet50_96", "resnet152_48", "gpt2_medium_8x1024", "densenet161_32"]
MEASURED_STEPS = [f"{name}.cuda" for name in (
    "vgg19_64", "unet_8x572", "resnet50_96", "resnet152_48", "densenet161_32", "googlenet_256", "pspnet_2",
    "gpt2_medium_8x1024", "bert_large_32x512", "vit_large_64", "llama_1b_4x2048")]
MORE_STEPS = ["googlenet_256", "pspnet_2", "bert_large_32x512", "vit_large_64", "llama_1b_4x2048", "gpt_420_layers"]
SHARES = [90, 80, 70, 60, 50, 40, 30, 20]
FEW_SHARES = [80, 50, 30]
LITTLE_WORK = 40_000_000
TECHNIQUES = ["cuts", "prefix-cuts", "nesting", "aimed-prices", "planners", "reordering", "local-search", "incremental"]
INFEASIBLE = 1


class Step:
    def __init__(self, command: Path, name: str) -> None:
        self.name, self.command, self.path = name, command, ROOT / "data" / "steps" / f"{name}.graph.json"
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


class Table:
    """One table of the page: the lines after the mark with its name."""

    def __init__(self, name: str) -> None:
        self.pattern = re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
        lines = self.pattern.search(PAGE.read_text())[2].splitlines()
        self.rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def write(self, table: list[str]) -> None:
        text = "\n".join(table) + "\n"
        PAGE.write_text(self.pattern.sub(lambda found: found[1] + text + found[3], PAGE.read_text()))


def reached_table(name: str, steps: list[Step], new: list[str]) -> None:
    table, head = Table(name), " | ".join(f"{share} %" for share in SHARES)
    before = {row[0]: [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (row, bound)]
              for row, bound in zip(table.rows[2::2], table.rows[3::2], strict=True)}
    lines = [f"| step | GiB | {head} | least GiB |", "|---" * (len(SHARES) + 3) + "|"]
    for step in steps:
        lines += reached(step) if step.name in new else before[step.title]
    table.write(lines)


def ablation_table(steps: list[Step], new: list[str]) -> None:
    table, titles = Table("ablation"), [step.title.split(",")[0] for step in steps]
    before = {cells[0]: list(cells[2:]) for cells in zip(*table.rows, strict=True)}
    columns = [ablation(step) if step.name in new else before[title] for step, title in zip(steps, titles, strict=True)]
    names = ["everything", *(f"without {name}" for name in TECHNIQUES)]
    table.write([f"| | {' | '.join(titles)} |", "|---" * (len(steps) + 1) + "|",
                 *(f"| {name} | {' | '.join(row)} |" for name, *row in zip(names, *columns, strict=True))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--steps", default=",".join([*FIRST_STEPS, *MORE_STEPS, *MEASURED_STEPS]))
    options = parser.parse_args()
    new = options.steps.split(",")
    if unknown := set(new) - {*FIRST_STEPS, *MORE_STEPS, *MEASURED_STEPS}:
        parser.error(f"unknown step {', '.join(sorted(unknown))}")
    steps = [Step(options.command, name) for name in [*FIRST_STEPS, *MORE_STEPS]]
    reached_table("reached", steps, new)
    reached_table("measured", [Step(options.command, name) for name in MEASURED_STEPS], new)
    ablation_table(steps[:len(FIRST_STEPS)], new)


if __name__ == "__main__":
    main()
