"""Trains with inputs of many sizes inside one budget, beside eager and torch.compile(dynamic=True).

    python bench/shapes.py [--device cuda] [--bf16] [--cases gpt2,resnet50] [--sizes 50] [--share 0.6] [--rival 12]
                           [--rival-seconds 120] [--only-rival] [-o FILE]

The budget is what parameters and gradients take, and a share of what eager takes above that at the largest size. Sizes are
random; the first two are captured, all others are sizes of a step that is known. For each case:
first_s, second_s      from the call of the model to the end of backward, at the first and the second size; second_of_first is
                       their ratio. The first size was measured before, and no trace is kept, so it takes a capture, and a
                       search for half a second
before_ms              for each later size, how much longer its first step takes than its third one: median and most
..._cpu                the same in seconds that the thread which trains had the processor, which other programs do not change
over_own_plan_percent  how much longer the plan of the family takes, by its own times, than the plan of a whole search at that
                       size and room, for at most --searched sizes: median and most
ratio                  the time of one round over all sizes, once they are known, as a multiple of eager's
rival_ratio            the same of torch.compile(dynamic=True), over as many of the first --rival sizes as its process comes to
                       in --rival-seconds (`rival_sizes`); the second and third step at a size count. `rival_first_s` are its
                       first steps, which compile: in all, the longest, and how many of them took above a second;
                       `rival_peak_bytes` is its highest peak. With --only-rival, nothing else is measured
Every step's peak is compared with the budget and with the prediction (it is lower where the loop drops logits that the prediction
counts, as the model returned them), and every gradient with eager's, bit for bit, at
sizes where eager repeats its own.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import logging
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

import reprise

sys.path.insert(0, str(Path(__file__).resolve().parent / "gpu"))

from children import Children

PLANNING_SECONDS = 2.0
WAITING_SECONDS = 0.5  # as for users: other benchmarks wait for the whole search
Size = tuple[int, int]
Row = dict[str, Any]


class Case:
    def __init__(self, model: Callable[[], nn.Module], batches: range, lengths: range, is_text: bool) -> None:
        self.model, self.batches, self.lengths, self.is_text = model, batches, lengths, is_text
        self.in_bf16 = False

    def inputs(self, size: Size, device: torch.device) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(size[0] * 10007 + size[1])
        if self.is_text:
            words = torch.randint(0, 1000, size, generator=draw).to(device)
            return {"input_ids": words, "labels": words.clone()}
        images = torch.randn(size[0], 3, size[1], size[1], generator=draw)
        return {"pixel_values": images.to(device), "labels": torch.randint(0, 1000, (size[0],), generator=draw).to(device)}

    def largest(self) -> Size:
        return self.batches[-1], self.lengths[-1]

    def sizes(self, count: int) -> list[Size]:
        draw, found = random.Random(5), [self.largest()]
        while len(found) < count:
            size = draw.choice(self.batches), draw.choice(self.lengths)
            if size not in found:
                found.append(size)
        return found


def gpt2(**smaller: int) -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**smaller))


def resnet50(**smaller: Any) -> nn.Module:
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(
        num_labels=1000, problem_type="single_label_classification", **smaller))


# On the CPU the networks have all of their layers, and a quarter of their width.
CASES = {
    "cpu": {"gpt2": Case(partial(gpt2, n_embd=192, vocab_size=2000), range(2, 9), range(32, 129), True),
            "resnet50": Case(partial(resnet50, embedding_size=16, hidden_sizes=[64, 128, 256, 512]), range(16, 33),
                             range(64, 129, 4), False)},
    "cuda": {"gpt2": Case(gpt2, range(4, 17), range(64, 513), True),
             "resnet50": Case(resnet50, range(32, 97), range(128, 257, 8), False)},
}


class Seconds(NamedTuple):
    wall: float
    cpu: float  # of this thread


def _now() -> Seconds:
    return Seconds(time.perf_counter(), time.thread_time())


class Loop:
    """Steps of one model, timed, with the peak of the allocator where it has one."""

    def __init__(self, case: Case, model: nn.Module, device: torch.device, call: Callable[..., Any] | None = None) -> None:
        self.case, self.model, self.device = case, model, device
        self.call = model if call is None else call

    def step(self, size: Size) -> Seconds:
        inputs = self.case.inputs(size, self.device)
        self.model.zero_grad(set_to_none=True)
        self._wait()
        begin = _now()
        torch.manual_seed(1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.case.in_bf16):
            loss = self.call(**inputs).loss
        loss.backward()
        self._wait()
        end = _now()
        return Seconds(end.wall - begin.wall, end.cpu - begin.cpu)

    def round(self, sizes: list[Size]) -> float:
        return sum(self.step(size).wall for size in sizes)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def peak_of_eager(loop: Loop, size: Size) -> int:
    """The peak of a step without recomputation; on the CPU by Reprise's own prediction, which also measures the calls."""
    if loop.device.type == "cuda":
        loop.step(size)
        torch.cuda.reset_peak_memory_stats()
        loop.step(size)
        return torch.cuda.max_memory_allocated()
    twin = reprise.compile(copy.deepcopy(loop.model), waiting_seconds=WAITING_SECONDS)
    Loop(loop.case, twin, loop.device).step(size)
    return int(twin.plan.peak_bytes)


def over_own_plan(plan: Any) -> float | None:
    """How much longer this plan takes than one of a whole search, in percent; None if nothing is recomputed."""
    if plan.recompute_ns == 0:
        return None
    found = reprise.solve(plan.graph, plan.costs, planner="auto", budget_bytes=plan.at_work.room_bytes)
    return 100 * (plan.time_ns / found.simulation.time_ns - 1)


def gradients_of(loop: Loop, size: Size) -> list[str]:
    """Digests, which take no memory on the device."""
    loop.step(size)
    digests = [hashlib.sha256(p.grad.cpu().contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
               for p in loop.model.parameters() if p.grad is not None]
    loop.model.zero_grad(set_to_none=True)
    return digests


def trained(ours: Loop, plain: Loop, sizes: list[Size], searched: int) -> Row:
    plan = ours.model.plan
    first, second = ours.step(sizes[0]), ours.step(sizes[1])
    row: Row = {"first_s": first.wall, "second_s": second.wall, "second_of_first": second.wall / first.wall,
                "first_cpu_s": first.cpu, "second_cpu_s": second.cpu, "second_of_first_cpu": second.cpu / first.cpu}
    before, before_cpu, over = [], [], []
    repeated, wrong_bits, above = 0, 0, 0
    of_predicted: list[float] = []
    for size in sizes:
        times = [ours.step(size) for _ in range(3)]
        if size not in sizes[:2]:
            before.append(1e3 * (times[0].wall - times[2].wall))
            before_cpu.append(1e3 * (times[0].cpu - times[2].cpu))
        above += plan.measured_peak_bytes > plan.budget_bytes
        expected = [gradients_of(plain, size) for _ in range(2)]
        repeated += expected[0] == expected[1]
        predicted_bytes = plan.peak_bytes  # when the search has come to its end
        wrong_bits += expected[0] == expected[1] != gradients_of(ours, size)
        of_predicted.append(plan.measured_peak_bytes / predicted_bytes)
        if len(over) < searched and size not in sizes[:2] and (more := over_own_plan(plan)) is not None:
            over.append(more)
    row |= {"sizes": len(sizes), "captured_shapes": len([s for s in plan.sessions if s.runtime.layout_keys]),
            "before_ms": [statistics.median(before), max(before)],
            "before_cpu_ms": [statistics.median(before_cpu), max(before_cpu)], "steps_above_budget": above,
            "measured_of_predicted": [min(of_predicted), max(of_predicted)],
            "sizes_where_eager_repeats": repeated, "sizes_with_other_bits": wrong_bits}
    return row | ({"over_own_plan_percent": [statistics.median(over), max(over)], "searched": len(over)} if over else {})


def measure(name: str, case: Case, options: argparse.Namespace) -> Row:
    torch.manual_seed(0)
    case.in_bf16 = options.bf16
    device = options.device
    plain = Loop(case, case.model().to(device).train(), device)
    sizes = case.sizes(options.sizes)
    peak = peak_of_eager(plain, sizes[0])
    plain.model.zero_grad(set_to_none=True)
    parameters = sum(p.numel() * p.element_size() for p in plain.model.parameters())
    beside = parameters if device.type == "cuda" else 0  # the plain model stays there
    budget = beside + 2 * parameters + int((peak - 2 * parameters) * options.share)
    model = reprise.compile(copy.deepcopy(plain.model), budget=budget, cuda_graphs=False,
                            planning_seconds=PLANNING_SECONDS, waiting_seconds=WAITING_SECONDS)
    ours = Loop(case, model, device)
    row = {"case": name, "share": options.share, "budget_bytes": budget} | trained(ours, plain, sizes, options.searched)
    ours.model.zero_grad(set_to_none=True)
    eager = min(plain.round(sizes) for _ in range(2))
    row["ratio"] = min(ours.round(sizes) for _ in range(2)) / eager
    print(json.dumps(row), flush=True)
    return row


def compile_beside(name: str, case: Case, options: argparse.Namespace) -> None:
    """In a process of its own: prints a row after every size, so that there is one whenever the process is stopped."""
    torch.manual_seed(0)
    case.in_bf16 = options.bf16
    device = options.device
    model = case.model().to(device).train()
    plain, rival = Loop(case, model, device), Loop(case, model, device, torch.compile(model, dynamic=True))
    first, eager_s, rival_s, peak = [], 0.0, 0.0, 0
    for done, size in enumerate(case.sizes(options.rival), 1):
        eager_s += min(plain.step(size).wall for _ in range(3))
        first.append(rival.step(size).wall)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rival_s += min(rival.step(size).wall for _ in range(2))
        if device.type == "cuda":
            peak = max(peak, torch.cuda.max_memory_allocated())
        print(json.dumps({"case": name, "rival_sizes": done, "rival_ratio": rival_s / eager_s,
                          "rival_first_s": [sum(first), max(first), sum(seconds > 1 for seconds in first)],
                          "rival_peak_bytes": peak}), flush=True)


def rival_row(name: str, options: argparse.Namespace) -> Row:
    row: Row = {"rival_wanted_sizes": options.rival, "rival_sizes": 0}
    arguments = ["--compile-beside", "--device", str(options.device), "--cases", name, "--rival", str(options.rival)]
    with Children(__file__) as children:
        wrong = children.run(arguments + ["--bf16"] * options.bf16, options.rival_seconds, row.update)
    return row | ({"rival_ended": wrong} if wrong else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--cases", default="gpt2,resnet50")
    parser.add_argument("--sizes", type=int, default=None, help="by default 50, and 14 on the CPU")
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--searched", type=int, default=4)
    parser.add_argument("--rival", type=int, default=0, help="at how many of the sizes torch.compile is measured")
    parser.add_argument("--rival-seconds", type=float, default=120, help="that its process may take")
    parser.add_argument("--only-rival", action="store_true")
    parser.add_argument("--compile-beside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--log", action="store_true", help="say what Reprise does")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.sizes = options.sizes or (14 if options.device.type == "cpu" else 50)
    if options.log:
        logging.basicConfig(format="%(relativeCreated)d %(message)s")
        logging.getLogger("reprise").setLevel(logging.INFO)
    os.environ["REPRISE_KEEP_TRACES"] = "0"
    load = os.getloadavg()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    if options.compile_beside:
        compile_beside(options.cases, CASES[options.device.type][options.cases], options)
        return 0
    rows: list[Row] = []
    for name in options.cases.split(","):
        case = CASES[options.device.type][name]
        rows.append({"case": name} if options.only_rival else measure(name, case, options))
        if options.rival:
            torch.cuda.empty_cache()
            rows[-1] |= rival_row(name, options)
        print(json.dumps(rows[-1]), flush=True)
        if options.output:
            on_gpu = options.device.type == "cuda"
            options.output.write_text(json.dumps({
                "command": "python bench/shapes.py " + " ".join(sys.argv[1:]),
                "machine": torch.cuda.get_device_name(options.device) if on_gpu else platform.machine(),
                "cores": os.cpu_count(), "load": [load[0], os.getloadavg()[0]],  # when it began and ended
                "waiting_seconds": WAITING_SECONDS, "threads": torch.get_num_threads(),
                "python": platform.python_version(), "torch": torch.__version__, "results": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
