"""Trains with a thousand lengths in one process, and looks for steps above the budget, wrong bits and memory that grows.

    scripts/python.sh bench/many_lengths.py [--device cuda] [--lengths 1000] [--share 0.6] [--every 250] [-o FILE]

Each length comes once, in random order, with a random batch. The budget is what parameters and gradients take, and a share of
what the step adds at the largest size. After every step its peak is compared with the budget and its gradients with eager's.
After every --every lengths, a row says how many bytes are allocated between steps, how large the process is and how many
sessions and objects it has. The command fails if a step was above its budget, if gradients differ, if more sessions are kept
than there should be, or if the last row has a hundredth more allocated bytes or objects than the one before.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from preflight_check import machine
from torch import nn

import reprise
from reprise import memory

WORDS, FIRST, BATCHES = 500, 8, range(2, 7)
SIZES = 256  # of which sessions are kept


def gpt2(longest: int) -> nn.Module:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=WORDS, n_positions=longest, bos_token_id=0, eos_token_id=0)).train()


def step(model: nn.Module, words: torch.Tensor) -> None:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    model(input_ids=words, labels=words).loss.backward()


def is_same(model: nn.Module, plain: nn.Module, words: torch.Tensor) -> bool:
    step(plain, words)
    same = all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    plain.zero_grad(set_to_none=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--lengths", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    os.environ["REPRISE_MOST_SIZES"] = str(SIZES)
    device, draw = options.device, random.Random(7)
    lengths = list(range(FIRST, FIRST + options.lengths))
    largest = torch.randint(0, WORDS, (BATCHES[-1], lengths[-1]), device=device)
    plain = gpt2(lengths[-1]).to(device)
    model = reprise.compile(copy.deepcopy(plain))
    step(model, largest)
    fixed = 2 * sum(parameter.nbytes for parameter in plain.parameters())
    budget = fixed + int(options.share * (model.plan.peak_bytes - fixed))
    model.plan.set_budget(budget)
    draw.shuffle(lengths)
    over = different = recomputed = 0
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    print(f"{'lengths':>8}{'over':>6}{'other bits':>12}{'recomputed':>12}{'sessions':>10}{'allocated':>14}{'process':>10}"
          f"{'objects':>10}{'s':>7}", flush=True)
    for done, length in enumerate(lengths, 1):
        words = torch.randint(0, WORDS, (draw.choice(BATCHES), length), device=device)
        step(model, words)
        over += model.plan.measured_peak_bytes > budget
        recomputed += model.plan.recompute_ns > 0
        different += not is_same(model, plain, words)
        if done % options.every == 0 or done == len(lengths):
            model.zero_grad(set_to_none=True)
            del words
            gc.collect()
            rows.append({"lengths": done, "over_budget": over, "other_bits": different, "recomputed": recomputed,
                         "sessions": len(model.plan.sessions), "allocated_bytes": memory.allocated_bytes(device),
                         "process_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                         "objects": len(gc.get_objects()), "seconds": round(time.monotonic() - begin, 1)})
            row = rows[-1]
            print(f"{done:>8}{over:>6}{different:>12}{recomputed:>12}{row['sessions']:>10}{row['allocated_bytes']:>14}"
                  f"{row['process_bytes'] >> 20:>6} MiB{row['objects']:>10}{row['seconds']:>7.0f}", flush=True)
            if options.output:
                options.output.write_text(json.dumps({**machine(device), "budget_bytes": budget, "rows": rows}, indent=1) + "\n")
    before, last = rows[-2:] if len(rows) > 1 else (rows[0], rows[0])
    grows = last["sessions"] > SIZES + 2 or any(last[what] > 1.01 * before[what] for what in ("allocated_bytes", "objects"))
    return 1 if over or different or grows else 0


if __name__ == "__main__":
    sys.exit(main())
