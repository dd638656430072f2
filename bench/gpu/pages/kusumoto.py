"""The page on Table 1 of Kusumoto et al.: their planners, `auto` within their peaks, and time against peak."""

from __future__ import annotations

from chart import Series, chart

from .shared import (
    GIB, Places, Row, below_one, by_kind, failures, gib, mark, network_of, origin, picture, ratio, refusal, rows_of, spread_note,
    table, title_of, write)

COMMAND = "python bench/gpu/kusumoto.py"
THEIRS = {"chen": "Chen", "approx-tc": "approx. TC", "approx-mc": "approx. MC", "exact-tc": "exact TC", "exact-mc": "exact MC"}
# Batch, and seconds of the plain step and of approx. MC, read off Figure 3 on the authors' poster at the smallest batch of each
# panel. The poster does not show the other four networks of their table.
POSTER = {"pspnet_2": (3, 8.2, 9.94), "resnet152_48": (80, 4.6, 6.0), "densenet161_32": (60, 3.4, 4.58)}
Kinds = dict[str, Row]


def page(places: Places) -> None:
    rows = rows_of(places.results, "kusumoto", COMMAND)
    by_case = by_kind(rows)
    lines = ["# Kusumoto et al.'s Table 1 on a GPU", "", *origin(rows, COMMAND), "",
             "fp32. By how much a plan's measured peak is below eager's, and its time as a multiple of eager's; small: `auto` "
             "within the same peak. The planners of the paper plan the captured step by the paper's formula at the smallest "
             "budget that the formula has.", "", *their_planners(by_case), *spread_note(rows), *below_one(rows), "",
             "## `auto` at the paper's reductions", "", *papers_reductions(by_case), "", "## Time against budget", "",
             "`auto` at budgets from no recomputation down to the least it can do.", "", *sweep(by_case)]
    refused = [f"- {network_of(row['case'])}, {row['kind']}: {refusal(row)}." for row in rows
               if "refused" in row and "papers_graph" not in row]
    lines += ["", "No plan:", "", *refused] if refused else []
    lines += failures(rows, lambda row: f"{network_of(row['case'])}, {row['kind']}")
    for case, kinds in by_case.items():
        if any("ratio" in row for row in kinds.values()):
            drawn = time_against_peak(case, kinds)
            lines += ["", f"## {title_of(case)}", *picture(places, f"kusumoto-{case}", "time against peak", drawn)]
    write(places.output / "tables" / "kusumoto-gpu.md", lines)


def plan_cell(row: Row | None) -> str:
    if row is None or "ratio" not in row:
        return "no plan" if row and "refused" in row else "not measured"
    return f"{-row['reduction_percent']:+.0f} %, {ratio(row)}"


# -- The paper's planners.


def their_planners(by_case: dict[str, Kinds]) -> list[str]:
    body = []
    for case, kinds in by_case.items():
        if "peak_bytes" in kinds.get("eager", {}):
            eager = kinds["eager"]
            body.append([title_of(case), gib(eager["peak_bytes"]), f"{eager['ms']:.1f}{mark(eager)}",
                         *(paper_cell(kinds, kind) for kind in THEIRS)])
    lines = table(["", "eager, GiB", "ms", *THEIRS.values()], body)
    planned = [papers_graph_line(row) for kinds in by_case.values() for row in kinds.values() if "papers_graph" in row]
    if planned:
        lines += ["", "†: not run. The exact planners go through all lower sets, of which the captured step has too many; the "
                  "reduction is what they plan on the paper's own graph, an estimate as on [kusumoto2019](kusumoto2019.md).", "",
                  *planned]
    return lines


def paper_cell(kinds: Kinds, kind: str) -> str:
    planned = kinds.get(kind, {}).get("papers_graph")
    if planned:
        return f"{-planned['reduction_percent']:+.0f} % †"
    same = kinds.get(f"auto={kind}", {})
    return plan_cell(kinds.get(kind)) + (f" <sub>auto {ratio(same)}</sub>" if "ratio" in same else "")


def papers_graph_line(row: Row) -> str:
    planned, why = row["papers_graph"], row["refused"].partition(";")[0]
    return (f"- {network_of(row['case'])}, {THEIRS[row['kind']]}: captured step {why}; paper's graph, {planned['lower_sets']} "
            f"lower sets: {planned['peak_gb']:.2f} GB of {planned['plain_gb']:.2f} GB, forward computed again: "
            f"{planned['forward_again_percent']:.0f} %.")


# -- Comparison with the paper's reductions.


def papers_reductions(by_case: dict[str, Kinds]) -> list[str]:
    body = []
    for case, kinds in by_case.items():
        least = kinds.get("auto-least", {})
        if least:
            body.append([title_of(case), reduction_of(kinds), poster_cell(case), plan_cell(kinds.get("auto-paper")),
                         plan_cell(least) + (f" <sub>{gib(least['peak_bytes'])} GiB</sub>" if "peak_bytes" in least else "")])
    lines = table(["", "the paper's, approx. MC", "the paper's time", "`auto` at that reduction", "least peak of `auto`"], body)
    lines += ["", "The paper's time, as a multiple of its plain step, is read off Figure 3 on the authors' poster at the "
              "smallest batch it shows, which is larger than the table's; framework and card were Chainer and a Tesla K40. "
              "The poster has three of the networks; for the others, no time could be found."]
    for case, kinds in by_case.items():
        if "refused" in kinds.get("auto-paper", {}) and "at_peak" in kinds.get("auto-least", {}):
            lines += ["", f"{network_of(case)}: {forbids(kinds['auto-least'])}"]
    return lines


def reduction_of(kinds: Kinds) -> str:
    known = [row["paper_reduction_percent"] for row in kinds.values() if row.get("paper_reduction_percent")]
    return f"-{known[0]} %" if known else "not in it"


def poster_cell(case: str) -> str:
    if case not in POSTER:
        return "not known"
    batch, plain, planned = POSTER[case]
    return f"{planned / plain:.2f} <sub>batch {batch}</sub>"


def forbids(row: Row) -> str:
    at = row["at_peak"]
    largest = "; ".join(f"{gib(size)} GiB {name}" for size, name in at["largest"][:3])
    return (f"the least peak found, {gib(row['peak_bytes'])} GiB, is during `{at['op']}` of `{at['module']}`, which reads "
            f"{gib(at['reads_bytes'])} GiB, writes {gib(at['writes_bytes'])} GiB and has a workspace of "
            f"{gib(at['workspace_bytes'])} GiB beside {gib(at['resident_bytes'])} GiB of parameters. Largest there: {largest}.")


# -- All budgets.


def sweep(by_case: dict[str, Kinds]) -> list[str]:
    numbers = sorted({kind for kinds in by_case.values() for kind in kinds if kind.startswith("auto-") and "/" in kind})
    body = [[title_of(case), *(plan_cell(kinds.get(kind)) for kind in [*numbers, "auto-least"])]
            for case, kinds in by_case.items()]
    return table(["", *(kind.removeprefix("auto-") for kind in numbers), "least"], body)


def time_against_peak(case: str, kinds: Kinds) -> str:
    def series(name: str, of: list[Row], **how: bool) -> Series:
        return Series(name, [(row["peak_bytes"] / GIB, row["ratio"]) for row in of], **how,
                      labels=[f"{row['kind']}: {gib(row['peak_bytes'])} GiB, {row['ms']:.1f} ms" for row in of])

    run = {kind: row for kind, row in kinds.items() if "ratio" in row}
    auto = sorted((row for kind, row in run.items() if kind.startswith("auto")),
                  key=lambda row: (row["peak_bytes"], -row["ratio"]))
    drawn = [series("Reprise, auto", auto, line=True, strong=True)] if auto else []
    drawn += [series(name, [run[kind]]) for kind, name in {"eager": "eager", **THEIRS}.items() if kind in run]
    return chart(f"{title_of(case)}: time against peak", "peak, GiB", "time, of eager's", drawn)
