"""Writes the pages and pictures of the comparisons on a GPU from the rows in bench/results.

    python3 bench/gpu/tables.py [rivals kusumoto largest hong] [--results bench/results] [-o docs]

Without names: all. Needs neither torch nor a GPU. A page is written from its folder of rows alone; where there are none,
nothing is written for it and the command fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chart import Series, chart

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]
OWN = ("reprise", "reprise_graphs")
NAMES = {"eager": "eager", "checkpoint": "checkpoints of blocks", "selective": "selective checkpoints",
         "checkpoint_graph": "checkpoints in a CUDA graph", "compile": "torch.compile", "reprise": "Reprise",
         "reprise_graphs": "Reprise, CUDA graphs"}
THEIRS = {"chen": "Chen", "approx-tc": "approx. TC", "approx-mc": "approx. MC", "exact-tc": "exact TC", "exact-mc": "exact MC"}
GIB = 2**30


class Missing(Exception):
    """There are no rows."""


def rows_of(folder: Path, name: str, command: str) -> list[Row]:
    path = folder / f"{name}-cuda"
    rows = [row for file in sorted(path.glob("*.json")) for row in json.loads(file.read_text())["results"]]
    if not rows:
        raise Missing(f"{path} has no rows: run {command} on a GPU first")
    return rows


def origin(rows: list[Row], command: str) -> list[str]:
    """Where the numbers come from. More than one line: they are not of one machine."""
    known = {", ".join(str(part) for part in (
        f["gpu"] if "gpu" in f else f["machine"], f"torch {f['torch']}", f"CUDA {f['cuda']}" if "cuda" in f else "no GPU",
        f"cuDNN {f['cudnn']}" if "cudnn" in f else "", f"cudnn.benchmark {'on' if f.get('cudnn_benchmark') else 'off'}",
        f"TF32 for convolutions {'on' if f.get('tf32') else 'off'}", f["date"]) if part) for f in
        (row["facts"] for row in rows) if f}
    lines = [f"Written by `python3 bench/gpu/tables.py` from the rows that `{command}` measured; not edited by hand. "
             "How they are measured: [benchmarks](../benchmarks.md).", "", *(f"- {line}" for line in sorted(known))]
    if len({line.rpartition(", ")[0] for line in known}) > 1:
        lines += ["", "**These rows are not all of one machine and version.**"]
    return lines


def table(head: list[str], body: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|",
            *("| " + " | ".join(cells) + " |" for cells in body)]


def cases_of(rows: list[Row]) -> list[str]:
    return sorted({row["case"] for row in rows})


def gib(count: int) -> str:
    return f"{count / GIB:.2f}"


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return (lines[-1] if lines else "")[:160].replace("|", "/")


# -- Rivals.


def rivals(folder: Path, output: Path) -> None:
    command = "python bench/gpu/rivals.py"
    rows = rows_of(folder, "rivals", command)
    lines = ["# The same step by other means", "", *origin(rows, command), "",
             "Peaks in GiB, times as multiples of eager in the same process. In the columns of Reprise: its time with the "
             "row's peak as its budget, and the peak it had."]
    for case in cases_of(rows):
        of_case = [row for row in rows if row["case"] == case]
        lines += ["", f"## {case}", "", *rival_table(of_case), "", *verdict(of_case)]
        picture = output / "pictures" / f"rivals-{case}.svg"
        if any("ratio" in row for row in of_case):
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_text(time_against_peak(case, of_case))
            lines += ["", f"![time against peak](../pictures/{picture.name})"]
    write(output / "tables" / "rivals.md", lines)


def point_name(row: Row) -> str:
    return f"{row['kind']} {row['point']}".strip()


def rival_table(rows: list[Row]) -> list[str]:
    own = {(row["kind"], row["point"]): row for row in rows if row["kind"] in OWN}

    def cell(row: Row | None) -> str:
        if row is None:
            return "not measured"
        if "ratio" not in row:
            return "no plan" if "refused" in row else "failed"
        return f"{row['ratio']:.2f} <sub>{gib(row['peak_bytes'])}</sub>"

    body, notes = [], []
    order = list(NAMES)
    for row in sorted((r for r in rows if r["kind"] not in OWN), key=lambda r: (order.index(r["kind"]), -float(r["point"] or 0))):
        name = f"{NAMES[row['kind']]} {row['point']}".strip()
        if "note" in row:
            notes.append(f"- {name}: {row['note']}.")
        if "ratio" not in row:
            notes.append(f"- {name} failed: {last_line(row.get('error', ''))}")
            continue
        body.append([name, gib(row["peak_bytes"]), gib(row["reserved_bytes"]), f"{row['ms']:.1f}",
                     f"{row['spread_ms'][0]:.1f} to {row['spread_ms'][1]:.1f}", f"{row['ratio']:.2f}",
                     *(cell(own.get((kind, point_name(row)))) for kind in OWN)])
    refused = [f"- {NAMES[row['kind']]} at the peak of {row['point']}: {last_line(row['refused'])}"
               for row in rows if row["kind"] in OWN and "refused" in row]
    found = table(["", "peak", "reserved", "ms", "from, to", "of eager", "Reprise", "Reprise, CUDA graphs"], body)
    return [*found, *([""] if notes or refused else []), *notes, *refused]


def ahead(rows: list[Row]) -> list[tuple[Row, Row | None]]:
    """Points of others that no point of Reprise equals in both peak and time, beyond the spread of both, each with
    Reprise's fastest in that peak."""
    own = [row for row in rows if row["kind"] in OWN and "ratio" in row]
    found = []
    for row in rivals_among(rows):
        best = min((o for o in own if o["peak_bytes"] <= row["peak_bytes"]), key=lambda o: o["ratio"], default=None)
        if best is None or best["spread_ms"][0] / best["eager_ms"] > row["spread_ms"][1] / row["eager_ms"]:
            found.append((row, best))
    return found


def rivals_among(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] not in OWN and "ratio" in row]


def verdict(rows: list[Row]) -> list[str]:
    tried = {(row["kind"], row["point"]) for row in rows if row["kind"] in OWN and ("ratio" in row or "refused" in row)}
    kinds = {kind for kind, _ in tried} or {*OWN}
    open_points = [point_name(row) for row in rivals_among(rows)
                   if any((kind, point_name(row)) not in tried for kind in kinds)]
    if open_points:
        return [f"Reprise was not measured at the peak of {', '.join(open_points)}: nothing is said about who is ahead."]
    found = ahead(rows)
    if not found:
        return ["**No point of the others is better than Reprise in both time and memory, beyond the spread of both.**"]
    parts = [f"{point_name(row)} ({gib(row['peak_bytes'])} GiB at {row['ratio']:.3f} of eager's time; Reprise "
             + ("has no plan there" if best is None else f"{best['ratio']:.3f}") + ")" for row, best in found]
    return [f"**Better than Reprise in both time and memory: {', '.join(parts)}.**"]


def time_against_peak(case: str, rows: list[Row]) -> str:
    series = []
    for kind, name in NAMES.items():
        found = sorted((row for row in rows if row["kind"] == kind and "ratio" in row), key=lambda row: row["peak_bytes"])
        if found:
            series.append(Series(name, [(row["peak_bytes"] / GIB, row["ratio"]) for row in found], line=len(found) > 1,
                                 strong=kind in OWN,
                                 labels=[f"{point_name(row)}: {gib(row['peak_bytes'])} GiB, {row['ms']:.1f} ms" for row in found]))
    return chart(f"{case}: time against peak", "peak, GiB", "time, of eager's", series)


# -- Kusumoto et al.


def kusumoto(folder: Path, output: Path) -> None:
    command = "python bench/gpu/kusumoto.py"
    rows = rows_of(folder, "kusumoto", command)
    lines = ["# Kusumoto et al.'s Table 1 on a GPU", "", *origin(rows, command), "",
             "By how much a plan's measured peak is below eager's, and its time as a multiple of eager's; small: `auto` within "
             "the same peak. The planners of the paper plan the captured step by the paper's formula at the smallest budget "
             "that the formula has.", ""]
    by_case = {case: {row["kind"]: row for row in rows if row["case"] == case} for case in cases_of(rows)}
    body = []
    for case, kinds in by_case.items():
        if "peak_bytes" in kinds.get("eager", {}):
            eager = kinds["eager"]
            body.append([case, gib(eager["peak_bytes"]), f"{eager['ms']:.1f}", *(paper_cell(kinds, kind) for kind in THEIRS)])
    lines += [*table(["", "eager, GiB", "ms", *THEIRS.values()], body), "", "## `auto` and the paper's reductions", ""]
    body = [[case, f"-{kinds['eager'].get('paper_reduction_percent')} %", plan_cell(kinds.get("auto-paper")),
             plan_cell(kinds.get("auto-least"))] for case, kinds in by_case.items() if "auto-least" in kinds]
    lines += table(["", "the paper's", "`auto` at that", "least peak of `auto`"], body)
    for case, kinds in by_case.items():
        if "refused" in kinds.get("auto-paper", {}) and "at_peak" in kinds.get("auto-least", {}):
            lines += ["", f"{case}: {forbids(kinds['auto-least'])}"]
    lines += ["", "## Time against budget", "", *sweep(by_case)]
    refused = [f"- {row['case']}, {row['kind']}: {last_line(row.get('refused') or row['error'])}" for row in rows
               if "refused" in row or "error" in row]
    write(output / "tables" / "kusumoto-gpu.md", lines + (["", "Without a plan, or failed:", "", *refused] if refused else []))


def plan_cell(row: Row | None) -> str:
    if row is None or "ratio" not in row:
        return "no plan" if row and "refused" in row else "not measured"
    return f"{-row['reduction_percent']:+.0f} %, {row['ratio']:.2f}"


def paper_cell(kinds: dict[str, Row], kind: str) -> str:
    same = kinds.get(f"auto={kind}", {})
    return plan_cell(kinds.get(kind)) + (f" <sub>auto {same['ratio']:.2f}</sub>" if "ratio" in same else "")


def forbids(row: Row) -> str:
    at = row["at_peak"]
    largest = "; ".join(f"{gib(size)} GiB {name}" for size, name in at["largest"][:3])
    return (f"the least peak found, {gib(row['peak_bytes'])} GiB, is during `{at['op']}` of `{at['module']}`, which reads "
            f"{gib(at['reads_bytes'])} GiB, writes {gib(at['writes_bytes'])} GiB and has a workspace of "
            f"{gib(at['workspace_bytes'])} GiB beside {gib(at['resident_bytes'])} GiB of parameters. Largest there: {largest}.")


def sweep(by_case: dict[str, dict[str, Row]]) -> list[str]:
    numbers = sorted({kind for kinds in by_case.values() for kind in kinds if kind.startswith("auto-") and "/" in kind})
    body = [[case, *(plan_cell(kinds.get(kind)) for kind in [*numbers, "auto-least"])] for case, kinds in by_case.items()]
    return table(["", *(kind.removeprefix("auto-") for kind in numbers), "least"], body)


def largest(folder: Path, output: Path) -> None:
    command = "python bench/gpu/largest_batches.py"
    rows = rows_of(folder, "largest-batches", command)
    lines = ["# Largest batches", "", *origin(rows, command), "",
             "As `reprise.preflight` predicts them, plain and planned; small: the peak of a real step at that size, in percent "
             "of the budget.", ""]
    budgets = sorted({row["budget_bytes"] for row in rows})

    def cell(case: str, budget: int) -> str:
        row = next((r for r in rows if r["case"] == case and r["budget_bytes"] == budget), None)
        if row is None or "error" in row:
            return "not measured" if row is None else "failed"
        return ", ".join(fit_cell(row[kind], budget) for kind in ("plain", "planned"))

    lines += table(["", *(f"{budget / GIB:g} GiB" for budget in budgets)],
                   [[case, *(cell(case, budget) for budget in budgets)] for case in cases_of(rows)])
    write(output / "tables" / "largest-batches.md", lines)


def fit_cell(fit: Row | None, budget: int) -> str:
    if fit is None:
        return "none"
    if "measured_bytes" in fit:
        return f"{fit['batch']} <sub>{100 * fit['measured_bytes'] / budget:.1f} %</sub>"
    return f"{fit['batch']}" + (" <sub>refused</sub>" if "refused" in fit else "")


# -- Hong et al.


def hong(folder: Path, output: Path) -> None:
    command = "python bench/gpu/hong.py"
    rows = rows_of(folder, "hong", command)
    lines = ["# Checkpoints on chains on a GPU", "", *origin(rows, command), "",
             "Peaks in GiB. Predicted: by Hong et al.'s formula for sets of checkpoints, by Reprise's simulator for its own "
             "plans. Between layers: the most that was allocated when a layer was done, which is what the authors measured. "
             "Highest: the allocator's own. Last two columns: `auto` within that highest."]
    for case in cases_of(rows):
        kinds = {row["kind"]: row for row in rows if row["case"] == case}
        order = sorted((kind for kind, row in kinds.items() if not kind.startswith("auto=") and "ratio" in row),
                       key=lambda kind: (kind != "plain", kind[0] != "{", kind.startswith("captured"), kind == "auto-least"))
        body = [hong_row(kinds, kind) for kind in order]
        lines += ["", f"## {case}", "", *table(["", "predicted", "between layers", "highest", "of the plain step's time",
                                                "`auto`, peak", "time"], body)]
        lines += [f"\n{kind}: {last_line(row.get('refused') or row['error'])}" for kind, row in kinds.items()
                  if "refused" in row or "error" in row]
        for kind in ("{3,11}", "chain"):
            if "curve" in kinds.get(kind, {}):
                picture = output / "pictures" / f"hong-{case}-{kind.strip('{}').replace(',', '-')}.svg"
                picture.parent.mkdir(parents=True, exist_ok=True)
                picture.write_text(layer_curve(f"{case}, {kind}", kinds[kind]["curve"]))
                lines += ["", f"{kind}, layer by layer:", "", f"![memory of each layer](../pictures/{picture.name})"]
    write(output / "tables" / "hong-gpu.md", lines)


def hong_row(kinds: dict[str, Row], kind: str) -> list[str]:
    row, same = kinds[kind], kinds.get(f"auto={kind}", {})
    checkpoints = row.get("checkpoints")
    name = f"{kind} {{{', '.join(map(str, checkpoints))}}}" if checkpoints and kind[0] != "{" else kind
    between = row.get("allocated_between_layers_bytes")
    ours = [gib(same["peak_bytes"]), f"{same['ratio']:.2f}"] if "ratio" in same else ["no plan" if "refused" in same else "", ""]
    return [name, gib(row["predicted_bytes"]) if "predicted_bytes" in row else "", gib(between) if between else "",
            gib(row["peak_bytes"]), f"{row['ratio']:.2f}", *ours]


def layer_curve(title: str, curve: dict[str, list[list[int]]]) -> str:
    entries = [*curve["forward"], *reversed(curve["backward"])]
    names = ("predicted", "when the layer is done", "highest")
    return chart(title, "layers forward, then backward", "GiB", [
        Series(name, [(float(k + 1), entry[i] / GIB) for k, entry in enumerate(entries)], line=True, marks=False, strong=i == 0)
        for i, name in enumerate(names)])


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(path)


PAGES: dict[str, Callable[[Path, Path], None]] = {"rivals": rivals, "kusumoto": kusumoto, "largest": largest, "hong": hong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; all if not given")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    for name in set(options.pages) - set(PAGES):
        parser.error(f"there is no page '{name}': choose of {', '.join(PAGES)}")
    failed = False
    for name in options.pages or PAGES:
        try:
            PAGES[name](options.results, options.output)
        except Missing as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
