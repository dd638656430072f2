"""The largest batches inside several budgets."""

from __future__ import annotations

from .shared import GIB, Places, Row, cases_of, failures, network_of, origin, rows_of, table, write

COMMAND = "python bench/gpu/largest_batches.py"


def page(places: Places) -> None:
    rows = rows_of(places.results, "largest-batches", COMMAND)
    lines = ["# Largest batches", "", *origin(rows, COMMAND), "",
             "As `reprise.preflight` predicts them, plain and planned; small: the peak of a real step at that size, in percent "
             "of the budget. No times are compared here.", ""]
    budgets = sorted({row["budget_bytes"] for row in rows})

    def cell(case: str, budget: int) -> str:
        row = next((r for r in rows if r["case"] == case and r["budget_bytes"] == budget), None)
        if row is None or "error" in row:
            return "not measured" if row is None else "failed"
        return ", ".join(fit_cell(row[kind], budget) for kind in ("plain", "planned"))

    lines += table(["", *(f"{budget / GIB:g} GiB" for budget in budgets)],
                   [[network_of(case), *(cell(case, budget) for budget in budgets)] for case in cases_of(rows)])
    lines += failures(rows, lambda row: f"{network_of(row['case'])} at {row['budget_bytes'] / GIB:g} GiB")
    write(places.output / "tables" / "largest-batches.md", lines)


def fit_cell(fit: Row | None, budget: int) -> str:
    if fit is None:
        return "none"
    if "measured_bytes" in fit:
        return f"{fit['batch']} <sub>{100 * fit['measured_bytes'] / budget:.1f} %</sub>"
    return f"{fit['batch']}" + (" <sub>refused</sub>" if "refused" in fit else "")
