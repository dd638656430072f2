"""The page on the largest batches inside several budgets."""

from __future__ import annotations

from .shared import GIB, Places, Row, cases_of, failures, last_line, network_of, origin, rows_of, table, write

KINDS = ("plain", "planned")
COMMAND = "python bench/gpu/largest_batches.py"


def page(places: Places) -> None:
    rows = rows_of(places.results, "largest-batches", COMMAND)
    lines = ["# Largest batches", "", *origin(rows, COMMAND), "",
             "As `reprise.preflight` predicts them in fp32, plain and planned; small: the peak of a real step at that size, in "
             f"percent of the budget, or why there was none. {tried(rows)}{off(rows)} No times are compared here.", ""]
    budgets = sorted({row["budget_bytes"] for row in rows})

    def cell(case: str, budget: int) -> str:
        row = next((r for r in rows if r["case"] == case and r["budget_bytes"] == budget), None)
        if row is None or "error" in row:
            return "not measured" if row is None else "failed"
        return ", ".join(fit_cell(row[kind], budget) for kind in KINDS)

    lines += table(["", *(f"{budget / GIB:g} GiB" for budget in budgets)],
                   [[network_of(case), *(cell(case, budget) for budget in budgets)] for case in cases_of(rows)])
    refused = [f"- {network_of(row['case'])}, {kind} at {row['budget_bytes'] / GIB:g} GiB: {last_line(row[kind]['refused'])}"
               for row in rows for kind in KINDS if "refused" in (row.get(kind) or {})]
    lines += ["", *refused] if refused else []
    lines += failures(rows, lambda row: f"{network_of(row['case'])} at {row['budget_bytes'] / GIB:g} GiB")
    write(places.output / "tables" / "largest-batches.md", lines)


def fit_cell(fit: Row | None, budget: int) -> str:
    if fit is None:
        return "none"
    over = fit.get("measured_bytes", 0) - budget
    if over > 0:
        return f"{fit['batch']} <sub>over by {over / 2**20:.0f} MiB</sub>"
    if "measured_bytes" in fit:
        return f"{fit['batch']} <sub>{100 * fit['measured_bytes'] / budget:.1f} %</sub>"
    return f"{fit['batch']} <sub>{'refused' if 'refused' in fit else 'not tried'}</sub>"


def tried(rows: list[Row]) -> str:
    fits = {kind: [(row[kind], row["budget_bytes"]) for row in rows if row.get(kind)] for kind in KINDS}
    real = {kind: [fit for fit in fits[kind] if {"measured_bytes", "refused"} & fit[0].keys()] for kind in KINDS}
    inside = {kind: sum(fit.get("measured_bytes", budget + 1) <= budget for fit, budget in real[kind]) for kind in KINDS}
    fitted = " and ".join(f"{inside[kind]} of {len(real[kind])} {kind}" for kind in KINDS if real[kind])
    predicted, measured = (sum(map(len, some.values())) for some in (fits, real))
    return f"**{measured} of {predicted} predictions were tried; {fitted or 'none'} fitted.**"


def off(rows: list[Row]) -> str:
    """A sentence that says how far measured peaks were from predicted ones."""
    said = []
    for kind in KINDS:
        percent = [100 * (fit["measured_bytes"] / fit["predicted_bytes"] - 1) for fit in (row.get(kind) for row in rows)
                   if fit and "measured_bytes" in fit]
        if percent:
            said.append(f"{kind} {min(percent):+.1f} to {max(percent):+.1f} %")
    return f" Measured peaks against predicted ones: {', '.join(said)}." if said else ""
