"""The lines of README.md that are written from rows: four networks that people train, and who is ahead of whom on them."""

from __future__ import annotations

import re
import textwrap

from . import budgets, rivals
from .shared import CannotWrite, Places, Row, gib, is_clear, network_of, origin, ratio, rows_of, spread_note, table, title_of

BEGIN, END = "<!-- evidence: written by bench/gpu/tables.py -->", "<!-- evidence end -->"
SHOWN = ("resnet50_96", "gpt2_medium_8x1024", "bert_large_32x512", "llama_1b_4x2048")
OTHER_WAYS = "Others, and in parentheses the faster engine of Reprise within the same peak (`fused` does not give eager's bits):"
OTHERS = {"checkpoint": "`torch.utils.checkpoint` of every block", "compile": "`torch.compile` at its best memory budget",
          "compile_graphs": "`torch.compile(mode=\"reduce-overhead\")`"}


def page(places: Places) -> None:
    rows = rivals.by_case(rows_of(places.results, "rivals", rivals.COMMAND), "bf16")
    by_case = {case: rows[case] for case in SHOWN if eager_of(rows.get(case, []))}
    if not by_case:
        raise CannotWrite(f"{places.results}/rivals-cuda has no eager times of {', '.join(SHOWN)}: run {rivals.COMMAND}")
    tried = budgets.measured(budgets.all_rows(places))
    head = f"{' '.join(machines(by_case))} Training under bf16 autocast. Times are multiples of plain PyTorch's. Inside half: " \
           "the measured peak nearest below half of plain PyTorch's. The last column was measured in fp32, without times; its " \
           "percentage is how much of the planned step is recomputation."
    lines = [wrapped(head), "", *networks(by_case, {row["case"]: row for row in tried}), "",
             wrapped(OTHER_WAYS), *(wrapped(f"- {line}", "  ") for line in beside_others(by_case)), "",
             wrapped(" ".join([kept(tried), *filter(None, spread_note(
                 row for of_case in by_case.values() for row in shown(of_case)))]))]
    text = places.readme.read_text() if places.readme.exists() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise CannotWrite(f"{places.readme} needs each of these lines once, in this order: {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    places.readme.write_text("\n".join([before + BEGIN, *lines, END]) + rest.partition(END)[2])
    print(places.readme)


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def machines(by_case: rivals.ByCase) -> list[str]:
    rows = [row for of_case in by_case.values() for row in of_case]
    known = [line for line in origin(rows, rivals.COMMAND) if line.startswith(("- ", "**"))]
    return [line.removeprefix("- ") + ("" if line.endswith("**") else ".") for line in known]


def eager_of(rows: list[Row]) -> Row | None:
    return rivals.of_kind(rows, "eager")


def own_of(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if row["kind"] in rivals.EXACT and "ratio" in row), key=lambda row: row["peak_bytes"])


# -- The table.


def networks(by_case: rivals.ByCase, smallest: dict[str, Row]) -> list[str]:
    body = []
    for case, rows in by_case.items():
        eager = eager_of(rows)
        assert eager  # page() leaves out networks without it.
        body.append([title_of(case), f"{gib(eager['peak_bytes'])} GiB, {eager['ms']:.0f} ms", plan_cell(within_half(rows), eager),
                     plan_cell(next(iter(own_of(rows)), None), eager), smallest_cell(smallest.get(case))])
    return table(["", "plain PyTorch", "Reprise inside half of that", "least peak timed", "smallest budget kept, fp32"], body)


def within_half(rows: list[Row]) -> Row | None:
    """The measured row that is nearest below half of eager's peak."""
    eager = eager_of(rows)
    return next((row for row in reversed(own_of(rows)) if eager and 2 * row["peak_bytes"] <= eager["peak_bytes"]), None)


def plan_cell(row: Row | None, eager: Row) -> str:
    if row is None:
        return "not measured"
    return f"{gib(row['peak_bytes'])} GiB ({100 * row['peak_bytes'] / eager['peak_bytes'] - 100:+.0f} %), {ratio(row)}"


def smallest_cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    return f"{gib(row['smallest_bytes'])} of {gib(row['plain_bytes'])} GiB, {row['rows'][-1]['recompute_percent']:.0f} %"


def kept(rows: list[Row]) -> str:
    inside, count = budgets.count_inside(rows)
    return f"{inside} of {count} budgets were kept by the allocator's own count: {len(rows)} networks, each at " \
           f"{count // len(rows)} budgets from no recomputation to the smallest " \
           "([docs/tables/budgets.md](docs/tables/budgets.md))."


# -- Comparison with what PyTorch offers.


def fastest(rows: list[Row], kind: str) -> Row | None:
    """The fastest point of this kind among those that are ahead of Reprise, or, if there are none, among all."""
    points = [row for row in rivals.rivals_among(rows) if row["kind"] == kind]
    lead = [row for row, _ in rivals.ahead(rows) if row["kind"] == kind]
    return min(lead or points, key=lambda row: row["ratio"], default=None)


def shown(rows: list[Row]) -> list[Row]:
    """The rows of one network whose times the README shows."""
    theirs = [row for kind in OTHERS if (row := fastest(rows, kind))]
    ours = [rivals.best_within(rows, row["peak_bytes"]) for row in theirs]
    return [row for row in (within_half(rows), next(iter(own_of(rows)), None), *theirs, *ours) if row]


def beside_others(by_case: rivals.ByCase) -> list[str]:
    lines = []
    for kind, name in OTHERS.items():
        said = []
        verdicts: dict[str, list[str]] = {"ahead of Reprise": [], "behind it": [], "level with it": []}
        for case, rows in by_case.items():
            row = fastest(rows, kind)
            if row is None or rivals.point_name(row) in rivals.not_measured(rows):
                said.append(f"{short(case)} not measured")
                continue
            ours = rivals.best_within(rows, row["peak_bytes"])
            said.append(f"{short(case)} {ratio(row)} in {gib(row['peak_bytes'])} GiB "
                        f"({f'{engine_of(ours)} {ratio(ours)}' if ours else 'Reprise has no plan'})")
            verdict = "ahead of Reprise" if ours is None or is_clear(row, ours) else \
                "behind it" if is_clear(ours, row) else "level with it"
            verdicts[verdict].append(short(case))
        found = [verdict if len(names) == len(by_case) > 1 else f"{verdict} on {', '.join(names)}"
                 for verdict, names in verdicts.items() if names]
        if found:
            first = re.sub(r" it\b", " Reprise", found[0])
            lines.append(f"{name}: {', '.join(said)}. **{'; '.join([first[0].upper() + first[1:], *found[1:]])}.**")
    return lines


def engine_of(ours: Row) -> str:
    return "eager" if ours["kind"] in rivals.EXACT else "fused"


def short(case: str) -> str:
    """The name of a network without any further description."""
    return network_of(case).partition(" with ")[0].partition(" of ")[0]
