"""How much of the time of recomputation the host's memory saves, on the measured steps of data/steps.

    make build && python3 bench/offload.py [--command PATH] [--steps NAME,...] [--jobs N]

Every step is planned by `auto` at shares of the memory above what is there from the start: without the host's memory, and
with as much of it as is wanted behind links of several rates each way. Copies have a latency of 10 us. The link of 50 GB/s
is looked at for all shares, the others for a few. Nothing runs on a device: times are simulated. The numbers are the same
on every machine, because the planner's work is limited by a count and not by a clock; only the seconds differ.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARES = (90, 80, 70, 60, 50, 40, 30, 20)
FEW_SHARES = (70, 50, 30)
ALL_SHARES_RATE = 50
RATES = (12, 25, 50, 125)  # GB/s
INFEASIBLE = 1
KEPT = ("time_ns", "recompute_ns", "wait_ns", "peak_bytes", "host_peak_bytes", "lower_bound_ns", "reordered", "seconds")


def plan(command: Path, graph: Path, budget: int, *more: str) -> dict | None:
    """What the command says as JSON; nothing if the budget is infeasible."""
    done = subprocess.run([command, "plan", graph, "--budget", str(budget), "--json", *more], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, INFEASIBLE):
        sys.exit(done.stderr.strip() or f"{command} exited with {done.returncode}")
    return json.loads(done.stdout) if done.returncode == 0 else None


class Step:
    def __init__(self, command: Path, name: str) -> None:
        self.command, self.graph = command, ROOT / "data" / "steps" / f"{name}.cuda.graph.json"
        values = json.loads(self.graph.read_text())["values"]
        self.start = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
        plain = plan(command, self.graph, 10**15, "--planner", "none")
        assert plain is not None
        self.title, self.time_ns, self.peak = plain["graph"], plain["time_ns"], plain["peak_bytes"]

    def row(self, share: int, rate: int | None) -> dict:
        """One plan; the overhead is the time of recomputing and waiting in percent of the step."""
        budget = self.start + (self.peak - self.start) * share // 100
        more = () if rate is None else ("--host-budget", "1000GiB", "--link", f"{rate}GB/s")
        found = plan(self.command, self.graph, budget, *more)
        row: dict = {"share": share, "link_GB_per_s": rate, "feasible": found is not None}
        if found is None:
            return row
        row |= {key: found[key] for key in KEPT if key in found}
        row["overhead_percent"] = round(100 * (found["time_ns"] - self.time_ns) / self.time_ns, 2)
        if found["lower_bound_ns"] is not None:
            row["bound_percent"] = round(100 * (found["lower_bound_ns"] - self.time_ns) / self.time_ns, 2)
        return row


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--steps", help="names, with commas between them; by default all that were measured")
    parser.add_argument("--jobs", type=int, default=1, help="how many plans are made at a time")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "offload.json")
    options = parser.parse_args()
    names = (options.steps.split(",") if options.steps else
             [path.name.split(".")[0] for path in sorted((ROOT / "data" / "steps").glob("*.cuda.graph.json"))])
    result: dict = {"command": "python3 bench/offload.py", "machine": platform.machine(), "cores": os.cpu_count(),
                    "latency_us": 10, "steps": {}}
    for name in names:
        step = Step(options.command, name)
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda asked, step=step: step.row(*asked), questions()))
        result["steps"][name] = {"title": step.title, "time_ns": step.time_ns, "peak_bytes": step.peak, "rows": rows}
        print(f"{name:<22}" + "  ".join(f"{row['share']} %: {row['overhead_percent']}" for row in rows
                                        if row["link_GB_per_s"] == ALL_SHARES_RATE and row["feasible"]), flush=True)
        result["summary"] = summary(result["steps"])
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
