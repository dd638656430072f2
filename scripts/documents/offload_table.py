#!/usr/bin/env python3
"""Writes the table of docs/algorithms/offload.md from bench/results/offload.json (python3 bench/offload.py).

    python3 scripts/documents/offload_table.py
"""

import json
from pathlib import Path

from marked import table_text, write_parts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms" / "offload.md"
RESULTS = ROOT / "bench" / "results" / "offload.json"
SHARES = (90, 70, 50, 40, 30, 20)
RATE = 50
OTHER_RATES = (12, 25, 125)


def cell(rows: dict, share: int) -> str:
    """Without the host's memory > with it, and the bound in brackets."""
    without, joint = rows[share, None], rows[share, RATE]
    if not joint["feasible"]:
        return "–"
    before = f"{without['overhead_percent']:.2f}" if without["feasible"] else "–"
    bound = f" ({max(0, joint['bound_percent']):.2f})" if "bound_percent" in joint else ""
    return f"{before} > {joint['overhead_percent']:.2f}{bound}"


def others(rows: dict) -> str:
    found = [rows[50, rate] for rate in OTHER_RATES]
    return " / ".join(f"{row['overhead_percent']:.2f}" if row["feasible"] else "–" for row in found)


def table(results: dict) -> str:
    head = ["step", *(f"{share} %" for share in SHARES), f"50 % with {' / '.join(map(str, OTHER_RATES))} GB/s"]
    lines = []
    for step in results["steps"].values():
        rows = {(row["share"], row["link_GB_per_s"]): row for row in step["rows"]}
        lines.append([step["title"], *(cell(rows, share) for share in SHARES), others(rows)])
    return table_text(head, lines)


if __name__ == "__main__":
    write_parts(PAGE, {"offload": table(json.loads(RESULTS.read_text()))})
