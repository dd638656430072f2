"""Compares the lengths and batches that reprise.preflight says fit together with real training.

    scripts/python.sh bench/preflight_lengths.py [--device cuda] [--lengths 64,128,256] [-o FILE]

A GPT-2 of transformers first trains steps at four sizes, so that its operators are known. Then preflight is asked which
batches of each length fit into three times the plain peak of a step, and how long the inputs of that step may be. The truth is
found by training, as in preflight_check.py. The check fails if a prediction is off by more than 3 % and more than one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from preflight_check import ALLOWED, Case, fits_plain, fits_planned, fresh_model, inputs_at, machine, peak_of_step, true_largest

import reprise
from reprise import memory

BATCH, LENGTH, MULTIPLE = 8, 96, 3
LAYERS, WIDTH, WORDS, POSITIONS = 4, 128, 1000, 2048
SECONDS = 2.0


def gpt2() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=LAYERS, n_embd=WIDTH, n_head=4, vocab_size=WORDS, n_positions=POSITIONS))


def words(batch: int, length: int, generator: torch.Generator) -> Any:
    ids = torch.randint(0, WORDS, (batch, length), generator=generator)
    return (), {"input_ids": ids, "labels": ids}


def of_length(length: int) -> Case:
    return Case("gpt2", BATCH, gpt2, lambda batch, generator: words(batch, length, generator), lambda output: output.loss)


def of_batch(batch: int) -> Case:
    """The same, with the length in the place of the batch."""
    return Case("gpt2", LENGTH, gpt2, lambda length, generator: words(batch, length, generator), lambda output: output.loss)


def compared(kind: str, predicted: int, case: Case, budget: int, device: torch.device) -> dict[str, Any]:
    fits = fits_plain if kind == "plain" else fits_planned
    truth = true_largest(lambda n: fits(case, n, budget, device), predicted)
    return {"predicted": predicted, "true": truth, "off": round(predicted / truth - 1, 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lengths", default="64,128,256")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    lengths = [int(length) for length in options.lengths.split(",")]
    memory.install_meter()
    model = fresh_model(of_length(LENGTH), device)
    budget = MULTIPLE * peak_of_step(model, of_length(LENGTH), BATCH, device)
    for length, batch in ((LENGTH, BATCH), (LENGTH, 2 * BATCH), (2 * LENGTH, BATCH), (LENGTH // 2, BATCH)):
        peak_of_step(reprise.compile(model), of_length(length), batch, device)
        torch._dynamo.reset()
    reprise.restore(model)
    begin = time.monotonic()
    found = reprise.preflight(model, inputs_at(of_length(LENGTH), BATCH, device)[1], budget, planning_seconds=SECONDS,
                              lengths=lengths).lengths
    seconds = time.monotonic() - begin
    assert found is not None
    del model
    asked = [(f"batch at length {row.length}", of_length(row.length), row.largest_plain.batch, row.largest_planned.batch)
             for row in found.rows]
    asked.append((f"length at batch {BATCH}", of_batch(BATCH), found.longest_plain.length, found.longest_planned.length))
    rows: list[dict[str, Any]] = []
    print(f"preflight took {seconds:.1f} s\n{'':<24}{'':<9}{'predicted':>10}{'true':>8}{'off':>9}", flush=True)
    for name, case, *predicted in asked:
        rows.append({"largest": name, "budget_bytes": budget, "preflight_seconds": round(seconds, 1)})
        for kind, number in zip(("plain", "planned"), predicted, strict=True):
            row = rows[-1][kind] = compared(kind, number, case, budget, device)
            print(f"{name:<24}{kind:<9}{row['predicted']:>10}{row['true']:>8}{100 * row['off']:>7.1f} %", flush=True)
        if options.output:
            options.output.write_text(json.dumps({**machine(device), "rows": rows}, indent=1) + "\n")
    return 0 if all(abs(row[kind]["predicted"] - row[kind]["true"]) <= max(1, ALLOWED * row[kind]["true"])
                    for row in rows for kind in ("plain", "planned")) else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # An empty cache, so that nothing is known beforehand.
        os.environ["REPRISE_CACHE_DIR"] = folder
        sys.exit(main())
