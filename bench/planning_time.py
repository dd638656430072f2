"""Measures how soon `auto` has a legal plan and a good one, on the steps of data/steps.

    make build && python3 bench/planning_time.py [--command PATH] [--steps NAME,...]

For every step and budget, the final plan is the one of the whole search (the default work, no clock). Then the command is
stopped after a growing number of seconds. The results are the first limit at which there is a plan, and the first at which the
step with that plan takes at most 2 % longer than with the final one. The planner uses one core. The time to prove the bound
counts, the time to read the file does not. If a search ends before its limit, the seconds it took are noted.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
SHARES = (90, 70, 50, 30, 20)
GOOD = 1.02
NO_PLAN = (1, 4)  # the exit codes for an infeasible budget and for a search that was stopped


def plan(command: Path, graph: Path, budget: str, *more: str) -> dict:
    done = subprocess.run([command, "plan", graph, "--budget", budget, "--json", *more], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, *NO_PLAN):
        sys.exit(done.stderr.strip() or f"reprise plan exited with {done.returncode}")
    return json.loads(done.stdout)


def rows(command: Path, path: Path) -> list[dict]:
    values = json.loads(path.read_text())["values"]
    resident = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
    plain = plan(command, path, "1000TB", "--planner", "none")
    made = []
    for share in SHARES:
        budget = str(resident + (plain["peak_bytes"] - resident) * share // 100)
        final = plan(command, path, budget)
        if final["recompute_ns"] is None:
            made.append({"share": share, "refused_s": final["seconds"]})
            continue
        row = {"share": share, "first_s": None, "good_s": None, "final_s": final["seconds"]}
        for limit in LIMITS:
            found = plan(command, path, budget, "--seconds", str(limit))
            if found["recompute_ns"] is None:
                continue
            row["first_s"] = row["first_s"] or found["seconds"]
            if found["time_ns"] <= GOOD * final["time_ns"]:
                row["good_s"] = found["seconds"]
                break
        made.append(row)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--steps", help="names, with commas between them; by default all steps")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "planning-time.json")
    options = parser.parse_args()
    folder = ROOT / "data" / "steps"
    names = options.steps.split(",") if options.steps else [p.name.split(".")[0] for p in
                                                            sorted(folder.glob("*.graph.json")) if p.name.count(".") == 2]
    result = {"command": "python3 bench/planning_time.py", "machine": platform.machine(), "cores": os.cpu_count(),
              "limits_s": LIMITS, "good": GOOD, "steps": {}}
    for name in names:
        path = folder / f"{name}.graph.json"
        ops = len(json.loads(path.read_text())["ops"])
        made = rows(options.command, path)
        result["steps"][name] = {"ops": ops, "rows": made}
        found = [row for row in made if "good_s" in row]
        slowest = {key: max((row[key] or float("inf")) for row in found) for key in ("first_s", "good_s", "final_s")}
        refused = max((row["refused_s"] for row in made if "refused_s" in row), default=0)
        print(f"{name:<22}{ops:>6} ops   first {slowest['first_s']:.2f} s   good {slowest['good_s']:.2f} s   "
              f"final {slowest['final_s']:.2f} s   refused {refused:.2f} s", flush=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
