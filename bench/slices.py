"""What slices save and cost: language models with many words and VGG-19, whole and in slices.

    scripts/python.sh bench/slices.py [--out bench/results/slices-cpu.json] [--device cuda] [--models llama-1.2b,vgg19]

Each model returns its loss alone. For each, the smallest budget that was found without slices, with them, and with close
ones; and steps at budgets from there up to the plain peak: eager, planned without slices and planned with them take turns,
so that their times, medians given as ratios to eager, see the same machine. Loss and gradients are compared bit for bit
with eager, and eager with itself, because not every kernel of a GPU repeats its own. With --rivals, the same model with a
loss in chunks written by hand, each chunk a checkpoint, and torch.compile.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import reprise

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from models.huggingface import llama as tied_llama
from models.vgg import Vgg19

ROUNDS = 5


class LossAlone(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, labels=words).loss


class Images(nn.Module):
    def __init__(self, model: nn.Module, labels: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("labels", labels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(images), self.labels)


class Chunked(nn.Module):
    """A language model whose loss a user has put into chunks of rows, each a checkpoint."""

    def __init__(self, model: nn.Module, chunks: int = 8) -> None:
        super().__init__()
        self.model = model
        self.chunks = chunks

    def chunk(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model.lm_head(hidden).float(), labels, reduction="sum")

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.model.base_model(input_ids=words).last_hidden_state[:, :-1].flatten(0, 1)
        labels = words[:, 1:].flatten()
        parts = zip(hidden.chunk(self.chunks), labels.chunk(self.chunks), strict=True)
        return sum(checkpoint(self.chunk, *part, use_reentrant=False) for part in parts) / labels.numel()


def llama(words: int, hidden: int, inner: int, layers: int, heads: int, groups: int, dtype: torch.dtype) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LossAlone(LlamaForCausalLM(LlamaConfig(
        vocab_size=words, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, use_cache=False)).to(dtype))


def qwen() -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return LossAlone(Qwen2ForCausalLM(Qwen2Config(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, use_cache=False, tie_word_embeddings=True)).to(torch.bfloat16))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return LossAlone(GPT2LMHeadModel(GPT2Config(vocab_size=50257, n_embd=256, n_layer=4, n_head=4, use_cache=False,
                                                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)))


def batch_of_words(words: int, batch: int, length: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, words, (batch, length))


# By name: the model and a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "tiny": (partial(llama, 4001, 64, 128, 1, 2, 2, torch.float32), batch_of_words(4001, 2, 128)),  # to try a command
    "llama-32k-fp32": (partial(llama, 32000, 256, 688, 4, 4, 4, torch.float32), batch_of_words(32000, 2, 256)),
    "gpt2-50k-fp32": (gpt2, batch_of_words(50257, 2, 256)),
    "llama-4-layers": (partial(llama, 128256, 2048, 8192, 4, 32, 8, torch.bfloat16), batch_of_words(128256, 4, 2048)),
    "llama-1.2b": (lambda: LossAlone(tied_llama()), batch_of_words(128256, 4, 2048)),
    "qwen-1.5b": (qwen, batch_of_words(151936, 4, 2048)),
    "vgg19": (lambda: Images(Vgg19(), torch.randint(0, 1000, (64,))), lambda: torch.randn(64, 3, 224, 224)),
}


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
    torch.manual_seed(1)  # of dropout
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


def ratio_to(plain: nn.Module, other: nn.Module, words: torch.Tensor) -> float:
    """The time of a step of the other in steps of the plain one, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for model, taken in zip((plain, other), times, strict=True):
            taken.append(step(model, words)[0])
    return round(statistics.median(times[1]) / statistics.median(times[0]), 3)


def at_budget(plain: nn.Module, planned: nn.Module, words: torch.Tensor, budget: int, seconds: float, ways: dict) -> dict:
    """Plans of several ways at one budget, beside eager."""
    kinds: dict[str, dict] = {}
    expected = digest(step(plain, words)[1])
    again = digest(step(plain, words)[1])
    for name, slices in ways.items():
        reprise.compile(planned, budget=budget, planning_seconds=seconds, slices=slices)
        try:
            found = digest(step(planned, words)[1])
        except reprise.InfeasibleBudget as refused:
            kinds[name] = {"feasible": False, "smallest_budget_bytes": refused.smallest_budget_bytes}
            print(f"  {budget}: {name} {json.dumps(kinds[name])}", flush=True)
            reprise.restore(planned)
            continue
        time_to_eager = ratio_to(plain, planned, words)
        plan = planned.plan
        repeated = [f == e for f, e, a in zip(found, expected, again, strict=True) if e == a]
        kinds[name] = {
            "feasible": True, "slices": plan.slices, "sliced": plan.sliced,
            "tensors": len(found), "repeated_by_eager": len(repeated), "same_bits_of_those": sum(repeated),
            "predicted_peak_bytes": plan.peak_bytes, "measured_peak_bytes": plan.measured_peak_bytes,
            "recompute_share": round(plan.recompute_ns / plan.time_ns, 4), "time_to_eager": time_to_eager}
        reprise.restore(planned)
        print(f"  {budget}: {name} {json.dumps(kinds[name])}", flush=True)
    return kinds


def rivals(plain: nn.Module, words: torch.Tensor) -> dict:
    """Peak and time of other ways on a GPU, with everything that PyTorch's allocator hands out."""
    ways = {"eager": plain}
    if isinstance(plain, LossAlone):
        ways["chunks by hand"] = Chunked(plain.model)
    ways["torch.compile"] = torch.compile(plain)
    found = {}
    for name, model in ways.items():
        step(model, words)
        torch.cuda.reset_peak_memory_stats()
        step(model, words)
        peak = torch.cuda.max_memory_allocated()
        found[name] = {"peak_bytes": peak, "time_to_eager": 1.0 if model is plain else ratio_to(plain, model, words)}
        print(f"  {name} {json.dumps(found[name])}", flush=True)
    return found


def on_gpu(options: argparse.Namespace) -> bool:
    return options.device == "cuda"


def measure(name: str, options: argparse.Namespace, result: dict, save: Callable[[], None]) -> None:
    """Puts what is found into the result, and saves it now and then, so that nothing is lost."""
    make_model, make_batch = MODELS[name]
    torch.manual_seed(0)
    plain = make_model().to(options.device)
    words = make_batch().to(options.device)
    seconds = options.seconds
    parameters = sum(p.numel() * p.element_size() for p in plain.parameters())
    step(plain, words)  # Libraries take their workspaces.
    planned = copy.deepcopy(plain)
    other = parameters if on_gpu(options) else 0  # the plain model lies beside the planned one
    kinds = {"whole": False, "slices": True, "close": "close"}
    least = {kind: smallest(planned, words, seconds, slices) - other for kind, slices in kinds.items()}
    reprise.compile(planned, planning_seconds=seconds)
    step(planned, words)
    top = planned.plan.peak_bytes - other
    reprise.restore(planned)
    print(name, least, top, parameters, flush=True)
    both = {"whole": False, "slices": True}
    budgets = [(least["slices"], {"slices": True}), (least["close"], {"close": "close"})]
    if options.shares:
        budgets += [(int(float(share) * top), both) for share in options.shares.split(",")]
    else:
        middle = (least["slices"] + least["whole"]) // 2
        budgets += [(budget, both) for budget in (middle, least["whole"], (least["whole"] + top) // 2)]
    result |= {"name": name, "shape": list(words.shape), "plain_peak_bytes": top, "least_bytes": least,
               "parameter_bytes": parameters, "beside_the_model_bytes": other, "budgets": []}
    for budget, ways in budgets:
        possible = {kind: slices for kind, slices in ways.items() if budget >= least[kind]}
        impossible = {kind: {"feasible": False} for kind in ways if kind not in possible}
        row = at_budget(plain, planned, words, budget + other, seconds, possible)
        result["budgets"].append({"budget_bytes": budget} | impossible | row)
        save()
    if options.rivals:
        del planned
        result["rivals"] = rivals(plain, words)
        save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="of planning")
    parser.add_argument("--models", default="llama-32k-fp32,gpt2-50k-fp32", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--shares", help="budgets as shares of the plain peak, 0.5,0.35, instead of those between the smallest")
    parser.add_argument("--rivals", action="store_true", help="also other ways, on a GPU")
    options = parser.parse_args()
    if on_gpu(options):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)  # Neither repeats its own bits in backward.
        torch.backends.cuda.enable_cudnn_sdp(False)
    result = {"machine": torch.cuda.get_device_name() if on_gpu(options) else platform.processor() or platform.machine(),
              "torch": torch.__version__, "threads": torch.get_num_threads(), "models": []}
    def save() -> None:
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n")

    for name in options.models.split(","):
        result["models"].append({})
        measure(name, options, result["models"][-1], save)


if __name__ == "__main__":
    main()
