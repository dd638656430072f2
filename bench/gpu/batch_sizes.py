"""Figure 3 of Kusumoto et al. (NeurIPS 2019) on a GPU: time of a step against its batch size, inside the memory of their card.

    scripts/python.sh bench/gpu/batch_sizes.py [--cases resnet152_48,...] [--batches 80,120] [--jobs 4] [--again] [-o FOLDER]

eager      the network as it is, even at sizes that would not fit the authors' card, where they drew a straight line
chen       Chen's planner, which needs no budget
approx-tc  approximate, time-centric, at 10 GB by the paper's formula, the authors' own budget
approx-mc  approximate, memory-centric, at the smallest budget that the formula allows
auto       within 11.4 GB, which include the parameters

Each batch size has a process of its own and runs in fp32. Plans and eager are timed in turns: `ratio` is the time as a multiple
of eager's in the same run, and `paper_ratio` is read off the authors' poster, which shows three of the networks.
"""

from __future__ import annotations

import argparse
import sys

from captured import NetworkStep
from children import Children, command_line, device_alone, give
from common import CPU, GPU, STEPS, Training
from measure import Row, Rows, fill

CARD_BYTES = 11_400_000_000  # what a user can allocate on a Tesla K40
FORMULA_BYTES = 10_000_000_000
# Seconds of a step by batch size, in the order of KINDS; eager is measured or on the authors' straight line. 0 means that the
# figure does not show the point.
KINDS = ("eager", "approx-tc", "approx-mc", "chen")
POSTER = {
    "pspnet_2": {3: (8.2, 8.86, 9.94, 10.61), 5: (13.4, 15.10, 16.24, 17.35), 8: (21.3, 0, 26.02, 0)},
    "resnet152_48": {80: (4.6, 5.03, 6.0, 6.07), 120: (6.8, 7.67, 8.8, 8.88), 210: (11.8, 14.59, 15.2, 15.35)},
    "densenet161_32": {60: (3.4, 3.81, 4.58, 4.74), 100: (5.6, 6.84, 7.55, 7.83), 160: (8.8, 0, 11.98, 12.44)},
}
KEYS = ("case", "batch", "kind")
COMMAND = "python bench/gpu/batch_sizes.py"


def one_size(name: str, options: argparse.Namespace) -> None:
    batch = options.batch
    step = NetworkStep(Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu, batch=batch), options.lock)
    step.add_theirs("chen")
    step.add_theirs("approx-tc", budget_bytes=FORMULA_BYTES)
    step.add_theirs("approx-mc")
    step.add_auto("auto", CARD_BYTES)
    with device_alone(options.lock):
        rows = step.measure(options.samples)
    known = dict(zip(KINDS, POSTER.get(name, {}).get(batch, ()), strict=False))
    for row in rows:
        seconds = known.get(row["kind"])
        paper = {"paper_ratio": round(seconds / known["eager"], 3)} if seconds else {}
        give({"case": name, "batch": batch, "card_bytes": CARD_BYTES} | row | paper,
             f"{COMMAND} --cases {name} --batches {batch}")


def run(options: argparse.Namespace) -> int:
    rows = Rows(options.output, KEYS, options.again)
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]
    wanted = [{"case": case, "batch": batch, "kind": "eager"} for case in options.cases.split(",")
              for batch in options.batches or POSTER.get(case) or [STEPS[case].case.batch * factor for factor in (2, 3)]]

    def arguments(key: Row) -> list[str]:
        return ["--one", key["case"], "--batch", str(key["batch"]), *extra]

    with Children(__file__, options.jobs, options.lock) as children:
        return 1 if fill(children, rows, wanted, arguments, options.seconds) else 0


def main() -> int:
    parser = command_line(__doc__, "batch-sizes-cuda", POSTER, 300, samples=3)
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")],
                        help="by default those of the figure, or twice and three times the batch of the paper's table")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.one:
        return run(options)
    one_size(options.one, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
