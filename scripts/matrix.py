"""The exactness matrix: compares every network x budget x planner with eager PyTorch.

    scripts/python.sh scripts/matrix.py [--device cpu|cuda] [--cases resnet50,unet] [--seconds 5] [--jobs 4] [-o FILE]

Each network runs an eager step and a captured step without recomputation. Then, for each planner and budget, a plan is made
and run from the same state. A row says whether the loss, the gradients, the buffers and the generator have the bits of eager
and those of the plan without recomputation, whether the allocator's peak is the predicted one to the byte, and whether it is
inside the budget. The exit status is 1 if a row is not as promised.

If eager itself does not give the same bits twice (CUDA has operators that add numbers in any order, with or without
deterministic algorithms), a network cannot be judged by its bits. Its rows are as promised if they are close: the loss, the
gradients and the state are each at most CLOSE times as far from those of the plan without recomputation as two runs of eager
are from each other.

On CUDA, deterministic algorithms are on, and each network has one more row, for a step that runs as CUDA graphs. Its peak is
the size of the graphs' pool plus what lies beside it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "torch")]

from models.zoo import CASES  # noqa: E402
from steps import Step, different, distances, model_of, run_step  # noqa: E402

import reprise  # noqa: E402
from reprise import _core, planning  # noqa: E402
from reprise.progress import Progress  # noqa: E402

EAGER_RUNS = 4  # They start from the same state, to see whether their bits are the same.
CLOSE = 10
GRAPHS = "auto as CUDA graphs"
SHARES = (0.8, 0.6, 0.5)  # of the peak without recomputation
# Networks that cannot have the bits of eager, because AOTAutograd replaces some of eager's operators.
NOT_EAGERS = {
    "lstm": "AOTAutograd traces nn.LSTM as its cells, eager runs one fused operator",
    "pspnet": "AOTAutograd traces bilinear upsampling as gathers and products",
}


@dataclass
class Row:
    case: str
    planner: str
    budget: str
    budget_bytes: int
    predicted_bytes: int
    measured_bytes: int
    recompute_percent: float
    as_none: bool | None
    as_eager: bool | None  # None if the network is one of NOT_EAGERS
    repeats: bool = True  # whether eager repeats its own bits; if not, as_none and as_eager are None
    close: bool | None = None

    @property
    def kept(self) -> bool:
        same = self.as_none and self.as_eager is not False if self.repeats else self.close
        return bool(same) and self.as_predicted and self.measured_bytes <= self.budget_bytes

    @property
    def as_predicted(self) -> bool:
        """Whether the peak is the predicted one to the byte. With CUDA graphs, the last step may use less than was planned
        beside the pool."""
        if self.planner == GRAPHS:
            return self.measured_bytes <= self.predicted_bytes
        return self.predicted_bytes == self.measured_bytes


class Bench:
    """One captured network, and the steps it is compared with."""

    def __init__(self, name: str, batch: int | None, device: torch.device) -> None:
        self.case = CASES[name]
        self.batch = batch
        self.device = device
        eagers = [self._step(model_of(self.case, device=device)) for _ in range(EAGER_RUNS)]
        self.eager = eagers[0]
        self.repeats = not any(different(self.eager, other) for other in eagers)
        apart = [distances(a, b) for a, b in itertools.combinations(eagers, 2)]
        self.allowed = {kind: CLOSE * max(each[kind] for each in apart) for kind in apart[0]}
        self.start = {n: t.cpu().clone() for n, t in model_of(self.case).state_dict().items()}
        self.model = reprise.compile(model_of(self.case, device=device), cuda_graphs=False)
        for _ in range(2):  # From the second step on, it is known what the caller allocates.
            self.none = self._again()
        self.captured = self.model.plan.graph, self.model.plan.costs

    def _step(self, model: torch.nn.Module) -> Step:
        return run_step(model, self.case, batch=self.batch)

    def _again(self) -> Step:
        """Runs a step from the initial state."""
        self.model.load_state_dict(self.start)
        return self._step(self.model)

    def row(self, planner: str, budget: str, plan: Any, budget_bytes: int) -> Row:
        self.model.plan.use(plan, planner)
        step = self._again()
        measured = self.model.plan.measured_peak_bytes
        return Row(self.case.name, planner, budget, budget_bytes, self.model.plan.peak_bytes, measured,
                   round(100 * self.model.plan.recompute_ns / max(1, self.model.plan.time_ns), 2),
                   **self.judged(step))

    def judged(self, step: Step) -> dict[str, bool | None]:
        is_exception = self.case.name in NOT_EAGERS
        if self.repeats:
            return {"as_none": not different(step, self.none),
                    "as_eager": None if is_exception else not different(step, self.eager)}
        close = self._is_close(step, self.none) and (is_exception or self._is_close(step, self.eager))
        return {"as_none": None, "as_eager": None, "repeats": False, "close": close}

    def _is_close(self, step: Step, other: Step) -> bool:
        return all(distance <= self.allowed[kind] for kind, distance in distances(step, other).items())

    def graphs_row(self) -> Row:
        """A row for a step that runs as CUDA graphs, after the steps that come before a recording. The budget leaves room for
        memory that libraries allocate a second time inside the graphs' pool."""
        plain = self.model.plan.peak_bytes
        model = reprise.compile(model_of(self.case, device=self.device), int(1.5 * plain) + (256 << 20),
                                cuda_graphs=True)
        for _ in range(5):
            model.load_state_dict(self.start)
            step = self._step(model)
        if not model.plan.cuda_graphs.recorded:
            raise RuntimeError(f"{self.case.name} did not run as CUDA graphs: {model.plan.cuda_graphs.refused}")
        return Row(self.case.name, GRAPHS, "150% + 256 MiB", model.plan.budget_bytes, model.plan.peak_bytes,
                   model.plan.measured_peak_bytes, 0.0, **self.judged(step))

    def budgets(self, seconds: float) -> dict[str, int | None]:
        """The budgets by name; None stands for the smallest budget of each planner. The one halfway to the smallest is for
        networks whose parameters or largest operator leave so little to save that they have no plan at the other shares."""
        plain = self.model.plan.peak_bytes - self.model.plan.outside_bytes
        smallest = planning.smallest_budget_bytes(*self.captured, planning.AUTO, seconds)
        return {"100%": plain, **{f"{share:.0%}": int(share * plain) for share in SHARES},
                "halfway": (plain + smallest) // 2, "smallest": None}

    def rows(self, seconds: float) -> list[Row]:
        rows = []
        outside = self.model.plan.outside_bytes
        budgets = self.budgets(10 * seconds)
        with Progress(f"{self.case.name}: planner") as progress:
            for done, planner in enumerate(_core.planner_names()):
                progress(done, len(_core.planner_names()))
                for name, room in budgets.items():
                    limit = time.monotonic() + seconds
                    found = _core.solve(*self.captured, planner=planner, budget_bytes=room,
                                        should_stop=lambda until=limit: time.monotonic() > until)
                    if not found.plan.actions:
                        continue
                    inside = found.simulation.peak_bytes if room is None else room
                    rows.append(self.row(planner, name, found.plan, inside + outside))
        if self.device.type == "cuda":
            rows.append(self.graphs_row())
        return rows


def table(rows: list[Row]) -> str:
    lines = ["| network | planners | rows | bits as `none` | bits as eager | predicted = measured | inside |",
             "|---|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        eager = [row.as_eager for row in mine if row.as_eager is not None]
        bits = (f"{sum(bool(r.as_none) for r in mine)} | {sum(eager) if eager else 'exception'}" if mine[0].repeats else
                f"{sum(bool(r.close) for r in mine)} close | eager does not repeat its own bits")
        lines.append(
            f"| {case} | {len({row.planner for row in mine})} | {len(mine)} | {bits} | "
            f"{sum(r.as_predicted for r in mine)} | "
            f"{sum(r.measured_bytes <= r.budget_bytes for r in mine)} |")
    return "\n".join(lines)


def set_up(device: torch.device) -> None:
    torch.set_num_threads(2)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


def case_rows(name: str, options: argparse.Namespace) -> list[Row]:
    if options.jobs == 1:
        set_up(options.device)
        return Bench(name, options.batch, options.device).rows(options.seconds)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run(
            [sys.executable, __file__, "--device", str(options.device), "--cases", name, "--batch", str(options.batch),
             "--seconds", str(options.seconds), "-o", file.name], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or not Path(file.name).stat().st_size:
            raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return [Row(**row) for row in json.loads(Path(file.name).read_text())["rows"]]


def facts(options: argparse.Namespace) -> dict[str, Any]:
    device = options.device
    known = {"command": f"make matrix DEVICE={device.type}", "machine": platform.machine(),
             "python": platform.python_version(), "torch": torch.__version__, "batch": options.batch,
             "seconds_per_plan": options.seconds, "exceptions": NOT_EAGERS}
    if device.type == "cuda":
        return known | {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda,
                        "cudnn": torch.backends.cudnn.version()}
    return known | {"threads": 2}


def write(output: Path, options: argparse.Namespace, rows: list[Row]) -> None:
    output.write_text(json.dumps(facts(options) | {"rows": [asdict(row) for row in rows]}, indent=0) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="the time limit for planning one budget")
    parser.add_argument("--jobs", type=int, default=1, help="how many networks run at a time, each in a process of its own")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.device.type == "cuda" and options.device.index is None:
        options.device = torch.device("cuda", 0)
    output = options.output or ROOT / "bench" / "results" / f"matrix-{options.device.type}.json"
    rows: list[Row] = []
    begin = time.monotonic()
    names = options.cases.split(",")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(case_rows, name, options): name for name in names}
        for done in concurrent.futures.as_completed(running):
            mine = done.result()
            rows += mine
            wrong = [row for row in mine if not row.kept]
            print(f"{running[done]:<22}{len(mine):>5} rows{len(wrong):>5} not as promised"
                  f"{time.monotonic() - begin:>8.0f} s", flush=True)
            for row in wrong[:5]:
                print("   ", row)
            rows.sort(key=lambda row: names.index(row.case))
            write(output, options, rows)
    print(table(rows))
    good = sum(row.kept for row in rows)
    print(f"{good} passed, {len(rows) - good} failed")
    return 0 if rows and good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
