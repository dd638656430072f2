"""The page on twenty budgets for each network: what was asked for, predicted, allocated and reserved."""

from __future__ import annotations

from .shared import (
    CannotWrite, Places, Row, cases_of, failures, gib, last_line, network_of, origin, rows_of, table, title_of, write)

COMMAND = "python bench/gpu/budget.py"


def all_rows(places: Places) -> list[Row]:
    return rows_of(places.results, "budget", COMMAND)


def measured(rows: list[Row]) -> list[Row]:
    """The rows without an error."""
    found = [row for row in rows if "error" not in row]
    if not found:
        raise CannotWrite(f"every network failed: {last_line(rows[0]['error'])}; run {COMMAND} on a GPU again")
    return found


def count_inside(rows: list[Row]) -> tuple[int, int]:
    """How many budgets of these networks were kept, and how many there are."""
    steps = [step for row in rows for step in row["rows"]]
    return sum(step["allocated"] <= step["budget"] for step in steps), len(steps)


def page(places: Places) -> None:
    tried = all_rows(places)
    rows = measured(tried)
    by_case = {row["case"]: row for row in rows}
    cases = cases_of(rows)
    steps = [step for case in cases for step in by_case[case]["rows"]]
    inside, count = count_inside(rows)
    lines = ["# Budgets asked for, and kept", "", *origin(rows, COMMAND), "",
             f"Budgets from no recomputation to the smallest, a step at each: **{inside} of {count} inside**, by "
             f"`max_memory_allocated`; the prediction was the measured peak to the byte in "
             f"{sum(step['allocated'] == step['predicted'] for step in steps)}, and off by {max(map(off_percent, steps)):.3f} % "
             "at most. fp32, in GiB, everything on the device." + (" Reserved is what the allocator had taken from the device at "
             "most, with what it held for other budgets given back before." if any(map(is_reserved, steps)) else ""), "",
             *table(["", "no recomputation", "smallest budget", "of it", "inside", "prediction off by at most"],
                    [summary(by_case[case]) for case in cases])]
    for case in cases:
        lines += ["", f"## {title_of(case)}", "", *one_network(by_case[case]["rows"])]
    lines += failures(tried, lambda row: title_of(row["case"]))
    write(places.output / "tables" / "budgets.md", lines)


def off_percent(step: Row) -> float:
    return 100 * abs(step["allocated"] / step["predicted"] - 1)


def summary(row: Row) -> list[str]:
    steps = row["rows"]
    return [network_of(row["case"]), gib(row["plain_bytes"]), gib(row["smallest_bytes"]),
            f"{100 * row['smallest_bytes'] / row['plain_bytes']:.0f} %",
            "{} of {}".format(*count_inside([row])),
            f"{max(map(off_percent, steps)):.3f} %"]


def is_reserved(step: Row) -> bool:
    return "reserved_alone" in step


def one_network(steps: list[Row]) -> list[str]:
    keys = {"budget": "budget", "predicted": "predicted", "allocated": "allocated"}
    if all(map(is_reserved, steps)):
        keys["reserved"] = "reserved_alone"
    return table([*keys, "computed again"], [[*(f"{step[key] / 2**30:.3f}" for key in keys.values()),
                                              f"{step['recompute_percent']:.1f} %"] for step in steps])
