#!/usr/bin/env python3
"""Writes the table of docs/algorithms/online.md from bench/results/online.json (python3 bench/online.py).

    python3 scripts/documents/online_table.py
"""

import json
from pathlib import Path

from marked import table_text, write_parts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms" / "online.md"
RESULTS = ROOT / "bench" / "results" / "online.json"
SHARES = (80, 60, 50, 40, 30, 20)
KINDS = ("auto", "as_published", "one_run", "online")


def cell(rows: dict, share: int) -> str:
    found = [rows[share, kind].get("percent") for kind in KINDS]
    if all(percent is None for percent in found):
        return "–"
    return " / ".join("–" if percent is None else f"{percent:.1f}" for percent in found)


def table(results: dict) -> str:
    head = ["step", *(f"{share} %" for share in SHARES)]
    lines = []
    for step in results["steps"].values():
        rows = {(row["share"], row["kind"]): row for row in step["rows"]}
        lines.append([step["title"], *(cell(rows, share) for share in SHARES)])
    return table_text(head, lines)


if __name__ == "__main__":
    write_parts(PAGE, {"online": table(json.loads(RESULTS.read_text()))})
