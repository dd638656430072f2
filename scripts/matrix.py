"""The exactness matrix: every network x budget x planner, against eager PyTorch.

    python scripts/matrix.py [--device cpu] [--cases resnet50,unet] [--seconds 5] [-o FILE]

For each network one eager step and one captured step without recomputation; then, for each
planner and budget, a plan for that budget is made and run from the same state. A row says
whether loss, gradients, buffers and generator are bit for bit those of eager and those of the
plan without recomputation, whether the allocator's peak is the predicted one to the byte, and
whether it is inside the budget. Exits with 1 when a row is not as promised.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "torch")]

from networks.zoo import CASES  # noqa: E402
from steps import Step, different, model_of, run_step  # noqa: E402

import reprise  # noqa: E402
from reprise import _core, planning  # noqa: E402
from reprise.progress import Progress  # noqa: E402

SHARES = (0.8, 0.6, 0.5)  # of the peak without recomputation
# Where AOTAutograd itself puts other operators in the place of eager's.
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
    as_none: bool
    as_eager: bool | None  # None: an exception, see NOT_EAGERS

    @property
    def kept(self) -> bool:
        return (self.as_none and self.as_eager is not False and self.predicted_bytes == self.measured_bytes
                and self.measured_bytes <= self.budget_bytes)


class Bench:
    """One captured network."""

    def __init__(self, name: str, batch: int | None) -> None:
        self.case = CASES[name]
        self.batch = batch
        eager = model_of(self.case)
        self.eager = self._step(eager)
        self.start = {n: t.clone() for n, t in model_of(self.case).state_dict().items()}
        self.model = reprise.compile(model_of(self.case))
        for _ in range(2):  # the second knows what the caller allocates
            self.none = self._again()
        self.region = self.model.plan.region
        self.graph = self.model.plan.graph

    def _step(self, model: torch.nn.Module) -> Step:
        return run_step(model, self.case, batch=self.batch)

    def _again(self) -> Step:
        """A step from the state of the beginning."""
        self.model.load_state_dict(self.start)
        return self._step(self.model)

    def row(self, planner: str, budget: str, plan: Any, budget_bytes: int) -> Row:
        self.region.use(plan, planner, "matrix")
        step = self._again()
        measured = self.model.plan.measured_peak_bytes
        eagers = None if self.case.name in NOT_EAGERS else not different(step, self.eager)
        return Row(self.case.name, planner, budget, budget_bytes, self.model.plan.peak_bytes, measured,
                   round(100 * self.model.plan.recompute_ns / max(1, self.model.plan.time_ns), 2),
                   not different(step, self.none), eagers)

    def budgets(self, seconds: float) -> dict[str, int | None]:
        """None: the smallest of each planner. Networks whose parameters or largest operator leave
        little to save have a budget halfway to the smallest at least."""
        plain = self.region.current.peak_bytes
        smallest = planning.smallest_budget_bytes(self.graph, planning.AUTO, seconds)
        return {"100%": plain, **{f"{share:.0%}": int(share * plain) for share in SHARES},
                "halfway": (plain + smallest) // 2, "smallest": None}

    def rows(self, seconds: float) -> list[Row]:
        rows = []
        outside = self.region.current.outside_bytes
        budgets = self.budgets(10 * seconds)
        with Progress(f"{self.case.name}: planner") as progress:
            for done, planner in enumerate(_core.planner_names()):
                progress(done, len(_core.planner_names()))
                for name, room in budgets.items():
                    limit = time.monotonic() + seconds
                    found = _core.solve(self.graph, planner=planner, budget_bytes=room,
                                        should_stop=lambda until=limit: time.monotonic() > until)
                    if not found.plan.steps:
                        continue
                    room = found.simulation.peak_bytes if room is None else room
                    rows.append(self.row(planner, name, found.plan, room + outside))
        return rows


def table(rows: list[Row]) -> str:
    lines = ["| network | planners | rows | bits as `none` | bits as eager | predicted = measured | inside |",
             "|---|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        eager = [row.as_eager for row in mine if row.as_eager is not None]
        lines.append(
            f"| {case} | {len({row.planner for row in mine})} | {len(mine)} | {sum(r.as_none for r in mine)} | "
            f"{sum(eager) if eager else 'exception'} | "
            f"{sum(r.predicted_bytes == r.measured_bytes for r in mine)} | "
            f"{sum(r.measured_bytes <= r.budget_bytes for r in mine)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="for one plan")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "matrix-cpu.json")
    options = parser.parse_args()
    torch.set_num_threads(2)
    rows: list[Row] = []
    for name in options.cases.split(","):
        begin = time.monotonic()
        mine = Bench(name, options.batch).rows(options.seconds)
        rows += mine
        wrong = [row for row in mine if not row.kept]
        print(f"{name:<22}{len(mine):>5} rows{len(wrong):>5} not as promised{time.monotonic() - begin:>8.0f} s",
              flush=True)
        for row in wrong[:5]:
            print("   ", row)
    print(table(rows))
    options.output.write_text(json.dumps({
        "command": "make matrix", "machine": platform.machine(), "python": platform.python_version(),
        "torch": torch.__version__, "threads": torch.get_num_threads(), "batch": options.batch,
        "exceptions": NOT_EAGERS, "rows": [asdict(row) for row in rows]}, indent=0) + "\n")
    good = sum(row.kept for row in rows)
    print(f"{good} passed, {len(rows) - good} failed")
    return 0 if rows and good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
