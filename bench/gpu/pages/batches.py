"""The page on Figure 3 of Kusumoto et al.: time against batch size, inside the memory of their card."""

from __future__ import annotations

from chart import Series, chart

from .shared import (
    Places, Row, cases_of, failures, gib, mark, network_of, origin, picture, ratio, refusal, rows_of, spread_note, table, write)

COMMAND = "python bench/gpu/batch_sizes.py"
PLANNERS = {"chen": "Chen", "approx-tc": "approx. TC", "approx-mc": "approx. MC", "auto": "Reprise, auto"}


def page(places: Places) -> None:
    rows = rows_of(places.results, "batch-sizes", COMMAND)
    card = max(row.get("card_bytes", 0) for row in rows)
    lines = ["# Time against batch size on a GPU", "", *origin(rows, COMMAND), "",
             f"The card of Kusumoto et al. has {gib(card)} GiB for its user, and so has `auto` here. Planners: time as a "
             "multiple of eager's in the same run; small: the same in the paper, where the authors' poster has it, and the "
             f"measured peak in GiB. †: above {gib(card)} GiB here. fp32."]
    for case in cases_of(rows):
        of_case = [row for row in rows if row["case"] == case]
        lines += ["", f"## {network_of(case)}", "", *one_network(of_case)]
        if any("ms" in row for row in of_case):
            lines += picture(places, f"batch-sizes-{case}", "time against batch size", time_against_batch(case, of_case))
    write(places.output / "tables" / "batch-sizes.md", lines)


def one_network(rows: list[Row]) -> list[str]:
    found = {(row["batch"], row["kind"]): row for row in rows}
    body = []
    for batch in sorted({row["batch"] for row in rows}):
        eager = found.get((batch, "eager"), {})
        plain = [f"{eager['ms']:.1f}{mark(eager)}", peak(eager)] if "ms" in eager else ["failed" if "error" in eager else "", ""]
        body.append([str(batch), *plain, *(cell(found.get((batch, kind))) for kind in PLANNERS)])
    refused = [f"- {row['batch']}, {PLANNERS[row['kind']]}: {refusal(row)}." for row in rows if "refused" in row]
    return [*table(["batch", "eager, ms", "GiB", *PLANNERS.values()], body), *spread_note(rows),
            *(["", "No plan:", "", *refused] if refused else []),
            *failures(rows, lambda row: f"batch {row['batch']}, {row['kind']}")]


def cell(row: Row | None) -> str:
    if row is None or "ratio" not in row:
        return "no plan" if row and "refused" in row else "not measured"
    paper = f"paper {row['paper_ratio']:.2f}, " if "paper_ratio" in row else ""
    return f"{ratio(row)} <sub>{paper}{peak(row)}</sub>"


def peak(row: Row) -> str:
    return gib(row["peak_bytes"]) + (" †" if row["peak_bytes"] > row["card_bytes"] else "")


def time_against_batch(case: str, rows: list[Row]) -> str:
    series = []
    for kind, name in {"auto": PLANNERS["auto"], "eager": "eager", **PLANNERS}.items():
        of_kind = sorted((row for row in rows if row["kind"] == kind and "ms" in row), key=lambda row: row["batch"])
        if of_kind:
            series.append(Series(name, [(float(row["batch"]), row["ms"]) for row in of_kind], line=True, strong=kind == "auto",
                                 dotted=kind == "eager",
                                 labels=[f"{name}, batch {row['batch']}: {row['ms']:.1f} ms, {gib(row['peak_bytes'])} GiB"
                                         for row in of_kind]))
    return chart(f"{network_of(case)}: time against batch size", "batch size", "time of a step, ms", series)
