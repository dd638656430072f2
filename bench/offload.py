"""How much of the time of recomputation the host's memory saves, on the measured steps of data/steps.

    make build && python3 bench/offload.py [--command PATH] [--steps NAME,...] [--jobs N]

Every step is planned by `auto` at shares of the memory above what is there from the start: without the host's memory, and
with as much of it as is wanted behind links of several rates each way. Copies have a latency of 10 us. The link of 50 GB/s
is looked at for all shares, the others for a few. Nothing runs on a device: times are simulated. The numbers are the same
on every machine, because the planner's work is limited by a count and not by a clock; only the seconds differ.
"""

import statistics

from planned_steps import Step, run

SHARES = (90, 80, 70, 60, 50, 40, 30, 20)
FEW_SHARES = (70, 50, 30)
ALL_SHARES_RATE = 50
RATES = (12, 25, 50, 125)  # GB/s
KEPT = ("time_ns", "recompute_ns", "wait_ns", "peak_bytes", "host_peak_bytes", "lower_bound_ns", "reordered", "seconds")


def row(step: Step, share: int, rate: int | None) -> dict:
    """One plan; the overhead is the time of recomputing and waiting in percent of the step."""
    more = () if rate is None else ("--host-budget", "1000GiB", "--link", f"{rate}GB/s")
    found, is_found = step.plan(share, *more)
    made: dict = {"share": share, "link_GB_per_s": rate, "feasible": is_found}
    if not is_found:
        return made
    made |= {key: found[key] for key in KEPT if key in found}
    made["overhead_percent"] = round(100 * (found["time_ns"] - step.time_ns) / step.time_ns, 2)
    if found["lower_bound_ns"] is not None:
        made["bound_percent"] = round(100 * (found["lower_bound_ns"] - step.time_ns) / step.time_ns, 2)
    return made


def questions() -> list[tuple[int, int | None]]:
    asked: list[tuple[int, int | None]] = [(share, None) for share in SHARES]
    return asked + [(share, rate) for rate in RATES for share in
                    (SHARES if rate == ALL_SHARES_RATE else FEW_SHARES)]


def saved(rows: list[dict], rate: int) -> list[float]:
    """The part of recomputation's overhead that is gone, where both have a plan and there was something to save."""
    without = {row["share"]: row for row in rows if row["link_GB_per_s"] is None and row["feasible"]}
    return [1 - row["overhead_percent"] / without[row["share"]]["overhead_percent"] for row in rows
            if row["link_GB_per_s"] == rate and row["feasible"] and row["share"] in without
            and without[row["share"]]["overhead_percent"] > 0]


def summary(steps: dict[str, dict]) -> dict:
    found: dict = {}
    for rate in RATES:
        parts = [part for step in steps.values() for part in saved(step["rows"], rate)]
        if parts:
            found[f"{rate}_GB_per_s"] = {"plans": len(parts), "median_saved": round(statistics.median(parts), 3)}
    times = {kind: [row["seconds"] for step in steps.values() for row in step["rows"]
                    if row["feasible"] and (row["link_GB_per_s"] is None) == (kind == "without")]
             for kind in ("without", "with")}
    return found | {f"median_seconds_{kind}": round(statistics.median(seconds), 2) for kind, seconds in times.items()}


def line(rows: list[dict]) -> str:
    return "  ".join(f"{row['share']} %: {row['overhead_percent']}" for row in rows
                     if row["link_GB_per_s"] == ALL_SHARES_RATE and row["feasible"])


if __name__ == "__main__":
    run("offload", __doc__, questions(), row, line,
        lambda steps: {"latency_us": 10, "summary": summary(steps)})
