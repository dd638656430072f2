"""The page on other means beside Reprise: time against peak, and who is ahead."""

from __future__ import annotations

from chart import Series, chart

from .shared import (
    GIB, Places, Row, below_one, cases_of, failures, gib, is_clear, last_line, origin, picture, ratio, rows_of, spread_note,
    table, title_of, write)

COMMAND = "python bench/gpu/rivals.py"
OWN = ("reprise", "reprise_graphs", "fused", "fused_graphs")
EXACT = OWN[:2]  # the kinds that give eager's bits
NAMES = {"eager": "eager", "checkpoint": "checkpoints of blocks", "selective": "selective checkpoints",
         "checkpoint_graph": "checkpoints in a CUDA graph", "compile": "torch.compile",
         "compile_graphs": "torch.compile, CUDA graphs", "reprise": "Reprise", "reprise_graphs": "Reprise, CUDA graphs",
         "fused": "Reprise, fused", "fused_graphs": "Reprise, fused, CUDA graphs"}
DTYPES = {"bf16": "Under bf16 autocast", "fp32": "In fp32"}
ByCase = dict[str, list[Row]]


def page(places: Places) -> None:
    rows = rows_of(places.results, "rivals", COMMAND)
    measured = {dtype: found for dtype in DTYPES if (found := by_case(rows, dtype))}
    lines = ["# The same step by other means", "", *origin(rows, COMMAND)]
    for dtype, cases in measured.items():
        lines += ["", *([f"**{DTYPES[dtype]}.**", ""] if len(measured) > 1 else []), *summary(cases)]
    lines += ["", "Below: peaks in GiB, times as multiples of eager in the same process. In the columns of Reprise: its time "
              "with the row's peak as its budget, and the peak it had."]
    for dtype, cases in measured.items():
        for case, of_case in cases.items():
            lines += network(places, case, dtype, of_case)
    write(places.output / "tables" / "rivals.md", lines)


def by_case(rows: list[Row], dtype: str) -> ByCase:
    """The rows of a type. Those that say none are older than the others, and of bf16."""
    found = [row for row in rows if row.get("dtype", "bf16") == dtype]
    return {case: [row for row in found if row["case"] == case] for case in cases_of(found)}


def name_of(row: Row) -> str:
    return f"{NAMES[row['kind']]} {row['point']}".strip()


def point_name(row: Row) -> str:
    return f"{row['kind']} {row['point']}".strip()


def rivals_among(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] not in OWN and "ratio" in row]


def of_kind(rows: list[Row], kind: str) -> Row | None:
    return next((row for row in rivals_among(rows) if row["kind"] == kind), None)


# -- All networks.


def summary(cases: ByCase) -> list[str]:
    """A line for each network, with the fastest point of torch.compile and the one with the least peak; with CUDA graphs, where
    that was measured, there is one."""
    shown = [row for rows in cases.values() for row in rows]
    graphs = ("compile_graphs",) if any(row["kind"] == "compile_graphs" for row in shown) else ()
    columns = ("checkpoint", "selective", "checkpoint_graph")
    body = []
    for case, rows in cases.items():
        eager = of_kind(rows, "eager")
        cells = [title_of(case), f"{eager['ms']:.0f} ms <sub>{gib(eager['peak_bytes'])}</sub>" if eager else "not measured"]
        cells += [beside(rows, of_kind(rows, kind)) for kind in columns]
        compiled = [row for row in rivals_among(rows) if row["kind"] == "compile"]
        cells += [beside(rows, min(compiled, key=lambda row: row[key], default=None)) for key in ("ratio", "peak_bytes")]
        body.append([*cells, *(beside(rows, of_kind(rows, kind)) for kind in graphs)])
    head = ["", "eager", *(NAMES[kind] for kind in columns), "torch.compile, fastest measured",
            "torch.compile, least peak measured", *(NAMES[kind] for kind in graphs)]
    said = [f"- {title_of(case)}: {short_verdict(rows)}" for case, rows in cases.items()]
    return ["Times as multiples of eager's: theirs / Reprise's within the same peak, **bold** where one is smaller beyond the "
            "spread of the samples of both, and in milliseconds too; small: that peak in GiB.", "", *table(head, body),
            *spread_note(shown), *below_one(row for row in shown if row["kind"] in EXACT), "",
            "Better than Reprise in both time and memory:", "", *said]


def beside(rows: list[Row], row: Row | None) -> str:
    if row is None:
        return "not measured"
    at = [r for r in rows if r["kind"] in OWN and r["point"] == point_name(row)]
    own = min((r for r in at if "ratio" in r), key=lambda r: r["ratio"], default=None)
    theirs, ours = ratio(row), ratio(own) if own else "no plan" if any("refused" in r for r in at) else "not measured"
    if own and is_clear(own, row):
        ours = f"**{ours}**"
    elif ours == "no plan" or (own and is_clear(row, own)):
        theirs = f"**{theirs}**"
    return f"{theirs} / {ours} <sub>{gib(row['peak_bytes'])}</sub>"


def short_verdict(rows: list[Row]) -> str:
    missing = not_measured(rows)
    if missing:
        return f"not known, Reprise was not measured at the peak of {', '.join(missing)}."
    return ", ".join(name_of(row) for row, _ in ahead(rows)) + "." if ahead(rows) else "none."


# -- One network.


def network(places: Places, case: str, dtype: str, rows: list[Row]) -> list[str]:
    title, name = (title_of(case), case) if dtype == "bf16" else (f"{title_of(case)}, {dtype}", f"{case}-{dtype}")
    lines = ["", f"## {title}", "", *rival_table(rows), "", *verdict(rows)]
    if any("ratio" in row for row in rows):
        lines += picture(places, f"rivals-{name}", "time against peak", time_against_peak(title, rows))
    return lines


def rival_table(rows: list[Row]) -> list[str]:
    own = {(row["kind"], row["point"]): row for row in rows if row["kind"] in OWN}
    kinds = [kind for kind in OWN if kind == "reprise" or any(of == kind for of, _ in own)]
    order = list(NAMES)
    others = sorted((r for r in rows if r["kind"] not in OWN), key=lambda r: (order.index(r["kind"]), -float(r["point"] or 0)))
    body = [[name_of(row), gib(row["peak_bytes"]), gib(row["reserved_bytes"]), f"{row['ms']:.1f}",
             f"{row['spread_ms'][0]:.1f} to {row['spread_ms'][1]:.1f}", ratio(row),
             *(own_cell(own.get((kind, point_name(row)))) for kind in kinds)] for row in others if "ratio" in row]
    notes = [f"- {name_of(row)}: {row['note']}." for row in others if "note" in row]
    notes += [f"- {NAMES[row['kind']]} at the peak of {row['point']}: {last_line(row['refused'])}"
              for row in rows if row["kind"] in OWN and "refused" in row]
    found = table(["", "peak", "reserved", "ms", "from, to", "of eager", *(NAMES[kind] for kind in kinds)], body)
    return [*found, *spread_note(rows), *([""] if notes else []), *notes, *failures(rows, name_of)]


def own_cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    if "ratio" not in row:
        return "no plan" if "refused" in row else "failed"
    return f"{ratio(row)} <sub>{gib(row['peak_bytes'])}</sub>"


def best_within(rows: list[Row], peak_bytes: int) -> Row | None:
    own = (row for row in rows if row["kind"] in OWN and "ratio" in row and row["peak_bytes"] <= peak_bytes)
    return min(own, key=lambda row: row["ratio"], default=None)


def ahead(rows: list[Row]) -> list[tuple[Row, Row | None]]:
    """The points of others that no point of Reprise equals in both peak and time, beyond the spread of both. Each comes with
    Reprise's fastest point within that peak."""
    found = []
    for row in rivals_among(rows):
        best = best_within(rows, row["peak_bytes"])
        if best is None or is_clear(row, best):
            found.append((row, best))
    return found


def not_measured(rows: list[Row]) -> list[str]:
    """The points of others at whose peak no kind of Reprise was measured."""
    tried = {row["point"] for row in rows if row["kind"] in OWN and ("ratio" in row or "refused" in row)}
    return [point_name(row) for row in rivals_among(rows) if point_name(row) not in tried]


def verdict(rows: list[Row]) -> list[str]:
    missing = not_measured(rows)
    if missing:
        return [f"Reprise was not measured at the peak of {', '.join(missing)}: nothing is said about who is ahead."]
    found = ahead(rows)
    if not found:
        return ["**No point of the others is better than Reprise in both time and memory, beyond the spread of both.**"]
    parts = [f"{point_name(row)} ({gib(row['peak_bytes'])} GiB at {row['ratio']:.3f} of eager's time; Reprise "
             + ("has no plan there" if best is None else f"{best['ratio']:.3f}") + ")" for row, best in found]
    return [f"**Better than Reprise in both time and memory: {', '.join(parts)}.**"]


def time_against_peak(title: str, rows: list[Row]) -> str:
    series = []
    for kind in [*OWN, *(kind for kind in NAMES if kind not in OWN)]:
        found = sorted((row for row in rows if row["kind"] == kind and "ratio" in row), key=lambda row: row["peak_bytes"])
        if found:
            series.append(Series(NAMES[kind], [(row["peak_bytes"] / GIB, row["ratio"]) for row in found],
                                 line=kind in OWN, strong=kind in OWN,
                                 labels=[f"{point_name(row)}: {gib(row['peak_bytes'])} GiB, {row['ms']:.1f} ms"
                                         for row in found]))
    return chart(f"{title}: time against peak", "peak, GiB", "time, of eager's", series)
