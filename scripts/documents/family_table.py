#!/usr/bin/env python3
"""Writes the tables of docs/algorithms/family.md from bench/results/family.json (scripts/python.sh bench/family.py).

    python3 scripts/documents/family_table.py
"""

import json
from pathlib import Path

from marked import write_parts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms" / "family.md"
RESULTS = ROOT / "bench" / "results" / "family.json"
SHARES = (80, 60, 50, 40, 30, 20)
TITLES = {"gpt2_medium_8x1024": "GPT-2 medium", "bert_large_32x512": "BERT large with dropout", "resnet50_96": "ResNet50",
          "unet_8x572": "U-Net"}


def cell(size: dict, share: int) -> str:
    """Recomputation in percent of the step: the fastest of the family, adapted, and a whole search."""
    row = next(row for row in size["rows"] if row["share"] == share)
    times = [row[way] for way in ("fastest", "adapted", "auto")]
    if all(time is None for time in times):
        return "–"
    plain = size["plain_ns"]
    return " / ".join("–" if time is None else f"{100 * (time - plain) / plain:.2f}" for time in times)


def sizes_table(results: dict) -> str:
    lines = ["| made at > used at | " + " | ".join(f"{share} %" for share in SHARES) + " |", "|" + "---|" * (len(SHARES) + 1)]
    for family in results["families"]:
        for size in family["sizes"]:
            name = f"{TITLES[family['step']]}, {family['reference']} > {size['size']}"
            lines.append("| " + " | ".join([name, *(cell(size, share) for share in SHARES)]) + " |")
    return "\n".join(lines)


def losses_table(results: dict) -> str:
    summary = results["summary"]
    lines = ["| way | lost from 30 % on: median, most | lost at 20 %: median, most |", "|---|--:|--:|"]
    for way in summary["from_30_percent"]:
        title = way.replace("fastest_of_", "fastest of ") if way != "adapted" else "adapted, of 48"
        parts = [summary[range_][way] for range_ in ("from_30_percent", "below_30_percent")]
        lines.append(f"| {title} | " + " | ".join(
            f"{part['median_lost_percent']:.2f} %, {part['most_lost_percent']:.2f} %" for part in parts) + " |")
    return "\n".join(lines)


def main() -> None:
    results = json.loads(RESULTS.read_text())
    write_parts(PAGE, {"family": sizes_table(results), "losses": losses_table(results)})


if __name__ == "__main__":
    main()
