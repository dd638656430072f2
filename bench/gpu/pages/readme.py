"""The lines of README.md that are made of rows: the paper's networks, and one picture of time against memory."""

from __future__ import annotations

import textwrap

from . import budgets, kusumoto, rivals
from .shared import (
    CannotWrite, Places, Row, below_one, by_kind, gib, is_clear, network_of, origin, ratio, rows_of, spread_note, table, title_of)

BEGIN, END = "<!-- evidence: written by bench/gpu/tables.py -->", "<!-- evidence end -->"
PICTURED = "gpt2_medium_8x1024"


def page(places: Places) -> None:
    table_lines, table_rows = networks(places)
    picture_lines, picture_rows = beside_others(places)
    notes = [*spread_note(table_rows + picture_rows), *below_one(table_rows)]
    lines = [*table_lines, "", wrapped(kept(places)), "", *picture_lines, *map(wrapped, notes)]
    text = places.readme.read_text() if places.readme.exists() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise CannotWrite(f"{places.readme} needs each of these lines once, in this order: {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    places.readme.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + rest.partition(END)[2])
    print(places.readme)


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


# -- The seven networks of Kusumoto et al.


def networks(places: Places) -> tuple[list[str], list[Row]]:
    rows = rows_of(places.results, "kusumoto", kusumoto.COMMAND)
    body, shown = [], []
    for case, kinds in by_kind(rows).items():
        if "peak_bytes" in kinds.get("eager", {}):
            at = [kinds.get("auto-paper"), kinds.get("auto-least")]
            shown += [row for row in at if row]
            body.append([title_of(case), gib(kinds["eager"]["peak_bytes"]), kusumoto.reduction_of(kinds), time_cell(at[0]),
                         kusumoto.plan_cell(at[1])])
    text = "The networks of Kusumoto et al. at the paper's sizes in fp32, by how much the peak is reduced and the time of a " \
           "step as a multiple of eager PyTorch's. The paper's: the reduction in its Table 1, which Reprise is asked for on " \
           "eager's peak. All of it: [docs/tables/kusumoto-gpu.md](docs/tables/kusumoto-gpu.md)."
    head = ["", "eager, GiB", "the paper's", "Reprise at that, time", "Reprise's least peak, time"]
    return [*(wrapped(line) for line in [*machines(rows, kusumoto.COMMAND), text]), "", *table(head, body)], shown


def time_cell(row: Row | None) -> str:
    return ratio(row) if row and "ratio" in row else kusumoto.plan_cell(row)


def machines(rows: list[Row], command: str) -> list[str]:
    known = [line for line in origin(rows, command) if line.startswith(("- ", "**"))]
    return [line.removeprefix("- ") + ("" if line.endswith("**") else ".") for line in known]


def kept(places: Places) -> str:
    rows = budgets.measured(budgets.all_rows(places))
    inside, count = budgets.count_inside(rows)
    return f"Budgets: on {len(rows)} networks, each at {count // len(rows)} budgets from no recomputation to the smallest, " \
           f"{inside} of {count} were kept by the allocator's own count: [docs/tables/budgets.md](docs/tables/budgets.md). " + \
           " ".join(machines(rows, budgets.COMMAND))


# -- What PyTorch offers.


def beside_others(places: Places) -> tuple[list[str], list[Row]]:
    """The picture, and who is ahead of whom in it."""
    rows = [row for row in rows_of(places.results, "rivals", rivals.COMMAND) if row["case"] == PICTURED]
    if not rivals.rivals_among(rows):
        raise CannotWrite(f"{places.results}/rivals-cuda has no times of {PICTURED}: run {rivals.COMMAND} --cases {PICTURED}")
    text = f"{network_of(PICTURED)} under bf16 autocast beside what PyTorch offers: times as multiples of eager's, and " \
           "Reprise's within the same peak. Other networks: [docs/tables/rivals.md](docs/tables/rivals.md). " + \
           " ".join(machines(rows, rivals.COMMAND))
    return [f"![{title_of(PICTURED)}: time against peak](docs/pictures/rivals-{PICTURED}.svg)", "", wrapped(text), "",
            *(f"- {line}" for line in who_is_ahead(rows))], rows


def who_is_ahead(rows: list[Row]) -> list[str]:
    """Of each kind the fastest point, or where it is ahead of Reprise the fastest of those."""
    theirs = {rivals.point_name(row) for row, _ in rivals.ahead(rows)}
    missing = rivals.not_measured(rows)
    lines = []
    for kind, name in rivals.NAMES.items():
        points = sorted((row for row in rivals.rivals_among(rows) if row["kind"] == kind and kind != "eager"
                         and rivals.point_name(row) not in missing), key=lambda row: row["ratio"])
        lead = [row for row in points if rivals.point_name(row) in theirs]
        if lead:
            ours = rivals.best_within(rows, lead[0]["peak_bytes"])
            count = f" at {len(lead)} of {len(points)} settings measured" if len(points) > 1 else ""
            lines.append(f"{name}: {against(lead[0], ours)}. **Ahead of Reprise{count}**")
        elif points:
            ours = rivals.best_within(rows, points[0]["peak_bytes"])
            lines.append(f"{name}: {against(points[0], ours)}" + ("" if is_clear(ours, points[0]) else ", level"))
    return [*lines, *([f"Reprise was not measured at the peak of {', '.join(missing)}"] if missing else [])]


def against(row: Row, ours: Row | None) -> str:
    return f"{ratio(row)} in {gib(row['peak_bytes'])} GiB, Reprise {ratio(ours) if ours else 'has no plan there'}"
