"""What the online method recomputes on the measured steps of data/steps, beside planner `auto`.

    make build && python3 bench/online.py [--command PATH] [--steps NAME,...] [--jobs N]

Every step is planned at shares of the memory above what is there from the start: by `auto`; by one run of the online method
with the budget as its own, as published and with what was added to it; and by planner `online`, which takes the fastest of
many such runs. At the smallest share, `auto` is also asked without the traces of these runs. Nothing runs on a device: times
are simulated. The numbers are the same on every machine, because the planner's work is limited by a count and not by a clock;
only the seconds differ.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARES = (80, 60, 50, 40, 30, 20)
INFEASIBLE = 1
ONE_RUN = ("--planner", "online", "--judge", "formula")
WITHOUT = "auto_without_traces"
TIGHT_SHARE = 20
KINDS: dict[str, tuple[str, ...]] = {
    "auto": (),
    WITHOUT: ("--without", "traces"),
    "as_published": (*ONE_RUN, "--as-published"),
    "one_run": ONE_RUN,
    "online": ("--planner", "online"),
}


def plan(command: Path, graph: Path, budget: int, *more: str) -> dict:
    done = subprocess.run([command, "plan", graph, "--budget", str(budget), "--json", *more], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, INFEASIBLE):
        sys.exit(done.stderr.strip() or f"{command} exited with {done.returncode}")
    return json.loads(done.stdout)


class Step:
    def __init__(self, command: Path, name: str) -> None:
        self.command, self.graph = command, ROOT / "data" / "steps" / f"{name}.cuda.graph.json"
        values = json.loads(self.graph.read_text())["values"]
        self.start = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
        plain = plan(command, self.graph, 10**15, "--planner", "none")
        self.title, self.time_ns, self.peak = plain["graph"], plain["time_ns"], plain["peak_bytes"]

    def row(self, share: int, kind: str) -> dict:
        """One plan; recomputation in percent of the step, and the smallest budget known if there is no plan."""
        budget = self.start + (self.peak - self.start) * share // 100
        found = plan(self.command, self.graph, budget, *KINDS[kind])
        row = {"share": share, "kind": kind, "seconds": found["seconds"]}
        if found["recompute_ns"] is None:
            return row | {"smallest_budget_bytes": found["smallest_budget_bytes"]}
        return row | {"peak_bytes": found["peak_bytes"], "recompute_ns": found["recompute_ns"],
                      "percent": round(100 * found["recompute_ns"] / self.time_ns, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--steps", help="names, with commas between them; by default all that were measured")
    parser.add_argument("--jobs", type=int, default=1, help="how many plans are made at a time")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "online.json")
    options = parser.parse_args()
    names = (options.steps.split(",") if options.steps else
             [path.name.split(".")[0] for path in sorted((ROOT / "data" / "steps").glob("*.cuda.graph.json"))])
    result: dict = {"command": "python3 bench/online.py", "machine": platform.machine(), "cores": os.cpu_count(), "steps": {}}
    for name in names:
        step = Step(options.command, name)
        asked = [(share, kind) for share in SHARES for kind in KINDS if kind != WITHOUT or share <= TIGHT_SHARE]
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda question, step=step: step.row(*question), asked))
        result["steps"][name] = {"title": step.title, "time_ns": step.time_ns, "peak_bytes": step.peak, "rows": rows}
        print(f"{name:<22}" + "  ".join(f"{share} %: " + " / ".join(
            str(row.get("percent", "-")) for row in rows if row["share"] == share) for share in SHARES), flush=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
