"""Plans of the measured steps of data/steps by the `reprise` command, for benchmarks that run nothing on a device.

The numbers are the same on every machine, because the planner's work is limited by a count and not by a clock; only the
seconds differ.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INFEASIBLE = 1


class Step:
    """A measured step without recomputation: its title, time and peak."""

    def __init__(self, command: Path, name: str) -> None:
        self.command, self.graph = command, ROOT / "data" / "steps" / f"{name}.cuda.graph.json"
        values = json.loads(self.graph.read_text())["values"]
        self.start = sum(values["bytes"][v] for v in values["resident"] + values.get("arriving", []))
        plain, _ = self._plan(10**15, "--planner", "none")
        self.title, self.time_ns, self.peak = plain["graph"], plain["time_ns"], plain["peak_bytes"]

    def plan(self, share: int, *more: str) -> tuple[dict, bool]:
        """What the command says as JSON of a share of the memory above what is there from the start, with the seconds of a
        processor that it took, and whether there is a plan."""
        return self._plan(self.start + (self.peak - self.start) * share // 100, *more)

    def _plan(self, budget: int, *more: str) -> tuple[dict, bool]:
        child = subprocess.Popen([self.command, "plan", self.graph, "--budget", str(budget), "--json", *more],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout and child.stderr
        said, error = child.stdout.read(), child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, INFEASIBLE):
            sys.exit(error.strip() or f"{self.command} exited with {child.returncode}")
        return json.loads(said) | {"processor_seconds": round(used.ru_utime + used.ru_stime, 2)}, child.returncode == 0


def run(script: str, description: str | None, asked: Sequence[tuple], row: Callable[..., dict],
        line: Callable[[list[dict]], str], summary: Callable[[dict[str, dict]], dict]) -> None:
    """Asks all questions of all steps, by row(step, *question), and writes the results after each step.

    line: what is printed of the rows of a step. summary: what is added to the results of all steps so far.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "tools" / "reprise")
    parser.add_argument("--steps", help="names, with commas between them; by default all that were measured")
    parser.add_argument("--jobs", type=int, default=1, help="how many plans are made at a time")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / f"{script}.json")
    options = parser.parse_args()
    names = (options.steps.split(",") if options.steps else
             [path.name.split(".")[0] for path in sorted((ROOT / "data" / "steps").glob("*.cuda.graph.json"))])
    result: dict = {"command": f"python3 bench/{script}.py", "machine": platform.machine(), "cores": os.cpu_count(), "steps": {}}
    for name in names:
        step = Step(options.command, name)
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda question, step=step: row(step, *question), asked))
        result["steps"][name] = {"title": step.title, "time_ns": step.time_ns, "peak_bytes": step.peak, "rows": rows}
        print(f"{name:<22}{line(rows)}", flush=True)
        options.output.write_text(json.dumps(result | summary(result["steps"]), indent=1) + "\n")
