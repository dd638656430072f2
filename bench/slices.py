"""What slices save and cost: language models with many words, whole and in slices.

    scripts/python.sh bench/slices.py [--out bench/results/slices-cpu.json] [--device cuda] [--large]

Each model returns its loss alone. For each, the smallest budget that was found without slices, with them, and with close
ones; and steps at budgets from there up to the plain peak: eager, planned without slices and planned with them take turns,
so that their times, medians given as ratios to eager, see the same machine. Loss and gradients are compared bit for bit
with eager.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import platform
import statistics
import time
from pathlib import Path

import torch
from torch import nn

import reprise

ROUNDS = 5


class LossAlone(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, labels=words).loss


def models(large: bool) -> dict[str, tuple[nn.Module, int, int, int]]:
    """By name: the model, its words, and the shape of a batch."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if large:
        llama = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=4,
                            num_attention_heads=32, num_key_value_heads=8, use_cache=False)
        return {"llama-4x2048-128k-bf16": (LlamaForCausalLM(llama).to(torch.bfloat16), 128256, 4, 2048)}
    llama = LlamaConfig(vocab_size=32000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
                        use_cache=False)
    gpt2 = GPT2Config(vocab_size=50257, n_embd=256, n_layer=4, n_head=4, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0,
                      attn_pdrop=0.0)
    return {"llama-32k-fp32": (LlamaForCausalLM(llama), 32000, 2, 256), "gpt2-50k-fp32": (GPT2LMHeadModel(gpt2), 50257, 2, 256)}


def smallest(model: nn.Module, words: torch.Tensor, seconds: float, slices: bool | str) -> int:
    reprise.compile(model, budget=1, planning_seconds=seconds, slices=slices)
    try:
        model(words)
    except reprise.InfeasibleBudget as refused:
        return refused.smallest_budget_bytes
    finally:
        reprise.restore(model)
    raise AssertionError("one byte was enough")


def step(model: nn.Module, words: torch.Tensor) -> tuple[float, list[torch.Tensor]]:
    synchronize = torch.cuda.synchronize if words.is_cuda else lambda: None
    synchronize()
    begin = time.perf_counter()
    loss = model(words)
    loss.backward()
    synchronize()
    seconds = time.perf_counter() - begin
    results = [loss.detach().reshape(1).cpu(), *(p.grad.cpu() for p in model.parameters())]
    model.zero_grad()
    return seconds, results


def digest(results: list[torch.Tensor]) -> list[str]:
    """So that nothing of a step stays in memory, where it would count beside the next."""
    return [hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for t in results]


def at_budget(plain: nn.Module, planned: nn.Module, words: torch.Tensor, budget: int, seconds: float) -> dict:
    """Plans with and without slices at one budget, and eager, in turn."""
    kinds: dict[str, dict] = {}
    for name, slices in (("whole", False), ("slices", True)):
        reprise.compile(planned, budget=budget, planning_seconds=seconds, slices=slices)
        try:
            found = digest(step(planned, words)[1])
        except reprise.InfeasibleBudget:
            kinds[name] = {"feasible": False}
            reprise.restore(planned)
            continue
        expected = digest(step(plain, words)[1])
        times = {"eager": [], name: []}
        for _ in range(ROUNDS):
            times["eager"].append(step(plain, words)[0])
            times[name].append(step(planned, words)[0])
        plan = planned.plan
        kinds[name] = {
            "feasible": True, "slices": plan.slices, "sliced": plan.sliced,
            "same_bits": found == expected,
            "predicted_peak_bytes": plan.peak_bytes, "measured_peak_bytes": plan.measured_peak_bytes,
            "recompute_share": round(plan.recompute_ns / plan.time_ns, 4),
            "time_to_eager": round(statistics.median(times[name]) / statistics.median(times["eager"]), 3)}
        reprise.restore(planned)
    return {"budget_bytes": budget, **kinds}


def rows(name: str, model: nn.Module, words: torch.Tensor, seconds: float) -> dict:
    plain = LossAlone(model)
    planned = copy.deepcopy(plain)
    kinds = {"whole": False, "slices": True, "close": "close"}
    least = {kind: smallest(planned, words, seconds, slices) for kind, slices in kinds.items()}
    reprise.compile(planned, planning_seconds=seconds)
    step(planned, words)
    top = planned.plan.peak_bytes
    reprise.restore(planned)
    budgets = [(least["slices"] + least["whole"]) // 2, least["whole"], (least["whole"] + top) // 2]
    print(name, least, top, flush=True)
    made = [at_budget(plain, planned, words, budget, seconds) for budget in budgets]
    for row in made:
        print(json.dumps(row), flush=True)
    return {"name": name, "rows": words.numel(), "plain_peak_bytes": top, "least_bytes": least,
            "parameter_bytes": sum(p.numel() * p.element_size() for p in plain.parameters()), "budgets": made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="of planning")
    parser.add_argument("--large", action="store_true", help="four layers of a Llama with 128 k words, for a GPU")
    options = parser.parse_args()
    found = []
    for name, (model, vocabulary, batch, length) in models(options.large).items():
        words = torch.randint(0, vocabulary, (batch, length), device=options.device)
        found.append(rows(name, model.to(options.device), words, options.seconds))
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    result = {"machine": device, "torch": torch.__version__, "threads": torch.get_num_threads(), "models": found}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
