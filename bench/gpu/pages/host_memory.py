"""The page on steps that store values in the host's memory: time and peak beside recomputation alone and other ways."""

from __future__ import annotations

from .shared import Places, Row, cases_of, failures, gib, network_of, origin, ratio, rows_of, spread_note, table, write

COMMAND = "python bench/gpu/host_memory.py"
KINDS = {"eager": "eager", "recomputed": "recomputation alone", "stored": "with the host's memory",
         "stored_slowly": "the same plan, each copy delayed by 3 ms",
         "stored_at_a_quarter": "the same plan, the link at a quarter", "save_on_cpu": "`save_on_cpu`",
         "checkpoint_on_cpu": "checkpointed blocks, inputs on the CPU"}
DTYPES = {"bf16": "bf16 autocast", "tf32": "single precision with TF32"}


def page(places: Places) -> None:
    rows = rows_of(places.results, "host-memory", COMMAND)
    lines = ["# Values in the host's memory", "", *origin(rows, COMMAND), "",
             "The budget is half of eager's peak. *Lost* is what the plan loses by its own times, recomputation and waits, in "
             "percent of the step without both; *waited* is what a timed step waited for copies. Times are multiples of "
             "eager's in the same process. Peaks are the allocator's, in GiB, everything on the device; of plans they are "
             "also the predicted ones "
             f"({exact(rows)})."]
    for case in cases_of(rows):
        for dtype in DTYPES:
            found = {row["kind"]: row for row in rows if (row["case"], row["dtype"]) == (case, dtype)}
            if found:
                lines += ["", f"## {network_of(case)}, {DTYPES[dtype]}", "", *one_network(found)]
    lines += [*spread_note(rows), *failures(rows, lambda row: f"{row['case']}, {row['kind']}")]
    write(places.output / "tables" / "host-memory.md", lines)


def exact(rows: list[Row]) -> str:
    plans = [row for row in rows if "predicted_bytes" in row]
    return f"to the byte in {sum(row['predicted_bytes'] == row['peak_bytes'] for row in plans)} of {len(plans)}"


def one_network(found: dict[str, Row]) -> list[str]:
    rates = found["eager"].get("link")
    said = [f"The link carried {rates['down_gb_per_s']} GB/s down and {rates['up_gb_per_s']} GB/s up at the same time.", ""] \
        if rates else []
    return said + table(["", "peak", "time", "in the host's memory", "lost", "waited"],
                        [cells(name, found[kind]) for kind, name in KINDS.items() if kind in found])


def cells(name: str, row: Row) -> list[str]:
    if "refused" in row:
        return [name, "refused", "", "", "", ""]
    if "ratio" not in row:
        return [name, "failed", "", "", "", ""]
    return [name, gib(row["peak_bytes"]), ratio(row), gib(row["host_peak_bytes"]) if row.get("host_peak_bytes") else "",
            percent(row, "lost_percent"), percent(row, "measured_wait_percent")]


def percent(row: Row, key: str) -> str:
    return f"{row[key]:.2f} %" if key in row else ""
