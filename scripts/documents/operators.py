"""Trains PyTorch's own samples of its operators in eager and by Reprise, and compares the bits.

    scripts/python.sh scripts/documents/operators.py [--jobs 2] [--only linalg] [-o docs/tables/operators.md]

For every operator of torch.testing that has gradients, three samples are tried: the first, the one in the middle and the last.
The loss is the sum of the squares of the results; it and all gradients are compared bit by bit with eager. torch.testing needs
the package expecttest (pip install expecttest).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import reprise
from reprise.errors import GraphBreak, Unsupported

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90  # the time limit for one operator
SAME, NOT_EAGER, DIFFERS, REFUSED, FAILED = "same", "not in eager", "differs", "refused", "failed"
TEXT = """\
# Operator by operator

Written by `scripts/python.sh scripts/documents/operators.py`; not edited by hand. {machine}.

PyTorch's tests have samples of its operators. For every operator that has gradients and takes float32 numbers, up to three
samples are trained for one step, by eager PyTorch and by Reprise with a budget that does not bind, and the loss and all
gradients are compared.

| samples | |
|--:|---|
| {same} | the same bits |
| {differs} | other last bits |
| {refused} | refused, with the reason |
| {failed} | failed otherwise |
| {not_eager} | left out: eager fails on them in this form, or does not repeat its own bits |

{clean} of {operators} operators have the same bits in all samples that count. {left_out} more operators have no sample that
counts: {names}. The others:

| operator | samples | |
|---|--:|---|
{rows}
"""


class Operator(nn.Module):
    """A model that calls one operator, whose floating-point operands are its parameters."""

    def __init__(self, function: Any, sample: Any) -> None:
        super().__init__()
        self.function, held = function, []

        def hold(value: Any) -> Any:
            if isinstance(value, Tensor) and value.is_floating_point():
                held.append(nn.Parameter(value.detach().clone()))
                return _Held(len(held) - 1)
            return value

        self.operands = tree_map(hold, (sample.input, sample.args, sample.kwargs))
        self.held = nn.ParameterList(held)

    def forward(self, one: Tensor) -> Tensor:
        first, args, kwargs = tree_map(lambda x: self.held[x.index] * one if isinstance(x, _Held) else x, self.operands)
        results = tree_leaves(self.function(first, *args, **kwargs))
        kept = [torch.view_as_real(r) if r.is_complex() else r for r in results if isinstance(r, Tensor) and r.requires_grad]
        return sum(r.square().sum() for r in kept)


class _Held:
    def __init__(self, index: int) -> None:
        self.index = index


def trained(model: nn.Module, call: Any) -> list[Tensor | None]:
    model.zero_grad()
    torch.manual_seed(1)
    loss = call(torch.ones(()))
    loss.backward()
    return [loss.detach().clone(), *(None if p.grad is None else p.grad.clone() for p in model.parameters())]


def is_same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors are equal to the bit; all NaNs count as equal."""
    if a is None or b is None:
        return a is b
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(*(t.masked_fill(t.isnan(), 0.0).view(torch.int32) for t in (a, b)))


def apart(a: list[Tensor | None], b: list[Tensor | None]) -> float:
    """The largest difference between two lists of tensors, as a share of the largest number."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None and x.numel()]
    return max((float((x - y).abs().nan_to_num().max() / x.abs().nan_to_num().max().clamp(min=1e-30)) for x, y in pairs),
               default=1.0)


def compared(function: Any, sample: Any) -> tuple[str, str]:
    torch._dynamo.reset()
    model = Operator(function, sample)
    try:
        eager, again = (trained(model, model._call_impl) for _ in range(2))
    except TimeoutError:
        raise
    except Exception as error:
        return NOT_EAGER, type(error).__name__
    if not all(map(is_same, eager, again)):
        return NOT_EAGER, "its own bits"
    try:
        ours = trained(model, reprise.compile(model, "1GiB", planning_seconds=0.2))
    except (GraphBreak, Unsupported) as error:
        return REFUSED, reason(str(error))
    except TimeoutError:
        raise
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {reason(str(error))}"
    if all(map(is_same, eager, ours)):
        return SAME, ""
    far = apart(eager, ours)
    return DIFFERS, f"by {far:.0e} of the largest number" if far else "in the sign of a zero"


def reason(text: str) -> str:
    """The explanation in an error message, or its first line, shortened for a cell of the table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return textwrap.shorten((explained or lines or [""])[0].replace("|", "/"), 110, placeholder=" ...")


def check(part: int, parts: int, only: str) -> None:
    """Prints a JSON line for each operator."""
    from torch.testing._internal import common_methods_invocations as known

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    known.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)  # trained() sets the seed.
    signal.signal(signal.SIGALRM, too_long)
    wanted = [op for op in known.op_db if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")]
    for op in wanted[part::parts]:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if only not in name:
            continue
        signal.alarm(SECONDS)
        try:
            torch.manual_seed(0)
            samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
            found = [compared(op.get_op(), samples[i]) for i in sorted({0, len(samples) // 2, len(samples) - 1})]
        except TimeoutError:
            found = [(FAILED, f"more than {SECONDS} s")]
        except Exception as error:  # Some operators have samples only for other layouts.
            found = [(NOT_EAGER, type(error).__name__)]
        signal.alarm(0)
        print(json.dumps([name, found]), flush=True)


def too_long(*_: Any) -> None:
    raise TimeoutError


def write(path: Path, found: dict[str, list[list[str]]]) -> int:
    counts = Counter(kind for results in found.values() for kind, _ in results)
    counted = {name: [r for r in results if r[0] != NOT_EAGER] for name, results in found.items()}
    rows = []
    for name, results in sorted(counted.items()):
        for (kind, why), times in sorted(Counter((kind, why) for kind, why in results if kind != SAME).items()):
            rows.append(f"| `{name}` | {times} | {kind}{': ' if why else ''}{why} |")
    clean = sum(bool(results) and all(kind == SAME for kind, _ in results) for results in counted.values())
    path.write_text(TEXT.format(
        left_out=sum(not results for results in counted.values()),
        names=", ".join(f"`{name}`" for name, results in sorted(counted.items()) if not results) or "none",
        machine=f"torch {torch.__version__} on the CPU", operators=sum(map(bool, counted.values())), clean=clean,
        same=counts[SAME], differs=counts[DIFFERS], refused=counts[REFUSED], failed=counts[FAILED], not_eager=counts[NOT_EAGER],
        rows="\n".join(rows)))
    print(f"{path}: {dict(counts)}")
    return 1 if counts[FAILED] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only operators whose name contains this")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "tables" / "operators.md")
    options = parser.parse_args()
    if options.part is not None:
        check(options.part, options.jobs, options.only)
        return 0
    command = [sys.executable, __file__, "--jobs", str(options.jobs), "--only", options.only, "--part"]
    parts = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(options.jobs)]
    outputs = [part.communicate()[0] for part in parts]
    if any(part.returncode for part in parts):
        return 1
    return write(options.output, dict(json.loads(line) for output in outputs for line in output.splitlines()))


if __name__ == "__main__":
    sys.exit(main())
