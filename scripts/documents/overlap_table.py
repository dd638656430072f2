#!/usr/bin/env python3
"""Writes the table of docs/algorithms/overlap.md from bench/results/overlap.json (python3 bench/overlap.py).

    python3 scripts/documents/overlap_table.py
"""

import json
from pathlib import Path

from marked import table_text, write_parts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms" / "overlap.md"
RESULTS = ROOT / "bench" / "results" / "overlap.json"
HEAD = ("step", "policy", "peak", "its time (exposed)", "`auto` (exposed)", "gathers again", "faster by", "bound")


def ms(found: dict) -> str:
    return f"{found['time_ns'] / 1e6:.1f} ({found['exposed_ns'] / 1e6:.1f}) ms"


def row(step: dict, policy: dict) -> list[str]:
    fixed, found = policy["fixed"], policy["auto"]
    faster = 100 * (fixed["time_ns"] - found["time_ns"]) / fixed["time_ns"]
    return [step["step"].partition(", ")[2], policy["policy"], f"{fixed['peak_bytes'] / 2**30:.1f} GiB", ms(fixed), ms(found),
            str(found["gathers_again"]), f"{faster:.1f} %", f"{found['lower_bound_ns'] / 1e6:.1f} ms"]


if __name__ == "__main__":
    steps = json.loads(RESULTS.read_text())["steps"]
    write_parts(PAGE, {"overlap": table_text(HEAD, [row(step, policy) for step in steps for policy in step["policies"]])})
