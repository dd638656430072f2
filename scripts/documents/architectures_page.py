"""Writes docs/tables/architectures.md from what bench/architectures.py measured.

    python3 scripts/documents/architectures_page.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

Row = dict[str, Any]
MIB = 1 << 20
DEVICES = {"cpu": "On the CPU", "cuda": "On a GPU"}
WORDS_OF_A_REASON = 160
TEXT = """\
# Model by model

Written by `python3 scripts/documents/architectures_page.py` from what `scripts/python.sh bench/architectures.py [--device cuda]`
measured; not edited by hand.

The list is [models/architectures](../../models/architectures/__init__.py): small forms of architectures, built from their
configurations. Each trains in a process of its own with `reprise.compile(model, budget)`, without any other option. The budget is
what is there before a step (parameters, buffers, inputs) and 60 % of what a plain step adds, gradients included. Where no plan
fits that, the smallest budget that Reprise names in its refusal is used, and the row says which share that is. In the online
mode, which knows no smallest budget, 70, 80, 90 and 100 % are tried.

- *mode*: `graph` is a captured and planned step; `online` is a step that cannot be captured and runs call by call.
- *second step*: seconds from `reprise.compile` to the end of the second step, with empty caches: capture, profile, plan.
- *peak*: the most that was allocated in three steps of training and in those of `reprise.verify`; beside it the prediction, if it
  is another number. There is none in the online mode.
- *bits*: whether `reprise.verify` found loss, gradients, buffers and generators as in plain PyTorch, and whether three steps with
  SGD gave the same losses and parameters. Where plain PyTorch does not repeat its own bits, it says so; and the list names the
  [exceptions](../pytorch.md#exactness), where capture replaces an operator or an order and the last bits differ.
"""


def passed(row: Row) -> bool:
    """Whether the model trained inside a budget, with the bits of eager, unless eager has none or the list knows why not."""
    return bool(row.get("inside")) and (same(row) or not repeats(row) or bool(row.get("exception")))


def same(row: Row) -> bool:
    return bool(row["same"] and row["trained_same"])


def repeats(row: Row) -> bool:
    return bool(row["eager_repeats"] and row["eager_trains_same"])


def share(row: Row) -> float:
    """The part of what a plain step adds that the budget left."""
    return float((row["budget_bytes"] - row["before_bytes"]) / max(1, row["plain_bytes"] - row["before_bytes"]))


def bits(row: Row) -> str:
    if same(row):
        return "same"
    if not repeats(row):
        return "eager does not repeat its own"
    if row.get("exception"):
        return f"last bits: {row['exception']}"
    return "DIFFER: " + ", ".join(row["different"][:2] or ["after three steps"])


def peak(row: Row) -> str:
    text = f"{row['measured_bytes'] / MIB:.2f}"
    if row["predicted_bytes"] not in (None, row["measured_bytes"]):
        text += f" (predicted {row['predicted_bytes'] / MIB:.2f})"
    return text if row["inside"] else f"{text} OUTSIDE"


def in_short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WORDS_OF_A_REASON else line[:WORDS_OF_A_REASON] + " ..."


def problem(row: Row) -> str | None:
    """Why there are no numbers."""
    if "not_here" in row:
        return f"not here: {row['not_here']}"
    if "error" in row:
        return f"failed: {in_short(row['error'].strip().splitlines()[-1])}"
    return None if "mode" in row else f"refused: {in_short(row['refused'])}"


def line_of(row: Row) -> str:
    """For a terminal."""
    if (why := problem(row)) is not None:
        return f"{row['name']:<28} {why}"
    return (f"{row['name']:<28} {row['mode']:<7}{row['second_step_s']:>7.1f} s  {share(row):4.0%}  budget "
            f"{row['budget_bytes'] / MIB:.2f} peak {peak(row)} MiB  bits {bits(row)}")


def summary(rows: list[Row]) -> str:
    here = [row for row in rows if "not_here" not in row]
    done = [row for row in here if problem(row) is None]
    modes = Counter(row["mode"] for row in done)
    planned = [row for row in done if row["predicted_bytes"] is not None]
    asked = sum(row["budget_bytes"] == row["asked_bytes"] for row in done)
    parts = [
        f"{sum(map(passed, done))} of {len(here)} models train inside their budget "
        f"({modes['graph']} as a graph, {modes['online']} online)",
        f"{asked} at 60 % of what the step adds, {len(done) - asked} at more",
        f"{sum(map(same, done))} have the bits of eager, "
        f"{sum(not repeats(row) for row in done)} do not repeat their own in eager, "
        f"and {sum(repeats(row) and not same(row) and bool(row.get('exception')) for row in done)} are exceptions that are known",
        f"the predicted peak is the measured one in {sum(r['predicted_bytes'] == r['measured_bytes'] for r in planned)} of "
        f"{len(planned)} graphs",
        f"{len(rows) - len(here)} are not here"]
    return "; ".join(parts) + "."


def table(rows: list[Row]) -> list[str]:
    lines = ["| model | kind | mode | second step, s | step adds, MiB | budget, MiB | share | peak, MiB | bits |",
             "|---|---|---|--:|--:|--:|--:|--:|---|"]
    for row in rows:
        if problem(row) is None:
            adds = (row["plain_bytes"] - row["before_bytes"]) / MIB
            lines.append(f"| {row['name']} | {row['kind']} | {row['mode']} | {row['second_step_s']:.1f} | {adds:.2f} | "
                         f"{row['budget_bytes'] / MIB:.2f} | {share(row):.0%} | {peak(row)} | {bits(row)} |")
        elif "not_here" not in row:
            lines.append(f"| {row['name']} | {row['kind']} | {problem(row)} | | | | | | |")
    return lines


def section(content: Row) -> list[str]:
    rows = content["rows"]
    versions = ", ".join(f"{name} {content[name]}" for name in ("torch", "transformers", "timm", "torchvision") if content[name])
    lines = [f"## {DEVICES[content['device']]}", "", f"{content['machine']}, {versions}, {content['date']}.", "",
             summary(rows), "", *table(rows)]
    reasons = [row for row in rows if row.get("why_online")]
    if reasons:
        lines += ["", "Why a step could not be captured, in the words of the log:", ""]
        lines += [f"- {row['name']}: {in_short(row['why_online'])}" for row in reasons]
    missing = [row["name"] for row in rows if "not_here" in row]
    if missing:
        lines += ["", f"Not here, and not counted: {', '.join(missing)}."]
    return lines


def write_page(root: Path) -> Path:
    files = [path for device in DEVICES if (path := root / "bench" / "results" / f"architectures-{device}.json").exists()]
    if not files:
        raise SystemExit("there are no rows yet: run bench/architectures.py")
    page = root / "docs" / "tables" / "architectures.md"
    parts = [TEXT, *("\n".join(section(json.loads(path.read_text()))) + "\n" for path in files)]
    page.write_text("\n".join(parts))
    return page


if __name__ == "__main__":
    print(f"wrote {write_page(Path(__file__).resolve().parents[2])}")
    sys.exit(0)
