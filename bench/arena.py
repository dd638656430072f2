"""How much larger the arena of a plan is than what is live in it at once, on the measured steps of data/steps.

    make build && python3 bench/arena.py [--command PATH] [--plans FOLDER] [--steps NAME,...]

Every step is planned by `auto` at 90 to 20 % of the memory above what is there from the start, and without recomputation
(100 %). Each plan is placed twice: with what outlives the step stacked at the top of the arena, and with it anywhere.
Plans are kept in a folder and not made again. Seconds include reading the files.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARES = (100, 90, 80, 70, 60, 50, 40, 30, 20)
LIMITS = (1.0005, 1.0025, 1.005, 1.01)
INFEASIBLE = 1


def run(command: Path, *arguments: str | Path) -> dict | None:
    """What the command says as JSON; nothing where a budget is infeasible."""
    done = subprocess.run([command, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, INFEASIBLE):
        sys.exit(done.stderr.strip() or f"{command} exited with {done.returncode}")
    return json.loads(done.stdout) if done.returncode == 0 else None


def plan_file(options: argparse.Namespace, graph: Path, share: int) -> Path | None:
    name = graph.name.removesuffix(".graph.json")
    path = options.plans / f"{name}.{share}.plan.json"
    if path.exists():
        return path
    if share == 100:
        run(options.command, "plan", graph, "--budget", "1000TB", "--planner", "none", "-o", path)
        return path
    values = json.loads(graph.read_text())["values"]
    start = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
    plain = json.loads((options.plans / f"{name}.100.plan.json").read_text())["peak_bytes"]
    found = run(options.command, "plan", graph, "--budget", str(start + (plain - start) * share // 100), "-o", path)
    return None if found is None else path


def rows(options: argparse.Namespace, graph: Path) -> list[dict]:
    made = []
    for share in SHARES:
        plan = plan_file(options, graph, share)
        if plan is None:
            made.append({"share": share, "feasible": False})
            continue
        row = {"share": share, "feasible": True}
        for where in ("top", "anywhere"):
            begin = time.monotonic()
            found = run(options.command, "simulate", graph, plan, "--addresses", where)
            row |= {"addresses": found["addresses"], "load_bytes": found["load_bytes"],
                    f"{where}_arena_bytes": found["arena_bytes"],
                    f"{where}_ratio": round(found["arena_bytes"] / found["load_bytes"], 6),
                    f"{where}_s": round(time.monotonic() - begin, 3)}
        made.append(row)
    return made


def summary(steps: dict[str, list[dict]]) -> dict:
    feasible = [row for made in steps.values() for row in made if row["feasible"]]
    found: dict = {"plans": len(feasible)}
    for where in ("top", "anywhere"):
        ratios = [row[f"{where}_ratio"] for row in feasible]
        found[where] = {f"at_most_{limit}": sum(ratio <= limit for ratio in ratios) for limit in LIMITS}
        found[where]["worst"] = max(ratios)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--plans", type=Path, default=ROOT / "build" / "plans")
    parser.add_argument("--steps", help="without it, all that were measured")
    parser.add_argument("--compiler", default="", help="its name and version, for the result")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "arena.json")
    options = parser.parse_args()
    options.plans.mkdir(parents=True, exist_ok=True)
    folder = ROOT / "data" / "steps"
    names = options.steps.split(",") if options.steps else [p.name.removesuffix(".graph.json") for p in
                                                            sorted(folder.glob("*.cuda.graph.json"))]
    steps: dict[str, list[dict]] = {}
    for name in names:
        steps[name] = rows(options, folder / f"{name}.graph.json")
        ratios = " ".join(f"{row['share']}: {row['top_ratio']:.4f} {row['anywhere_ratio']:.4f}" if row["feasible"] else
                          f"{row['share']}: -" for row in steps[name])
        print(f"{name:<24} {ratios}", flush=True)
        result = {"command": "python3 bench/arena.py", "machine": platform.machine(), "cores": os.cpu_count(),
                  "compiler": options.compiler, "summary": summary(steps), "steps": steps}
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"]))


if __name__ == "__main__":
    main()
