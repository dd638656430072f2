"""Tests the pages of docs/training: their code runs inside its budget, and trains as it does without its lines of Reprise."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState
from several_processes import run_page
from steps import bits_of
from torch import nn
from training import Bits, state_of

import reprise

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "training").glob("*.md"))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_ONE = [page for page in PAGES if page.stem != "pipeline"]  # their code also trains in a process by itself
MOST_LINES = 55  # A longer page would not fit on a screen.

pytestmark = pytest.mark.usefixtures("one_thread")


def code_of(page: Path) -> str:
    return "\n".join(CODE.findall(page.read_text()))


@dataclass
class Run:
    """What the code of a page does, as seen from outside: every backward, and the state at the end."""

    compiled: list[nn.Module] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)  # measured after every backward
    state: Bits = field(default_factory=dict)


@contextlib.contextmanager
def watched(run: Run) -> Iterator[None]:
    compile, backward = reprise.compile, torch.Tensor.backward

    def watched_compile(model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        run.compiled.append(compile(model, *args, **kwargs))
        return run.compiled[-1]

    def watched_backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        run.losses.append(bits_of(loss))
        backward(loss, *args, **kwargs)
        run.peaks += [model.plan.measured_peak_bytes for model in run.compiled[-1:]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reprise, "compile", watched_compile)
        patch.setattr(torch.Tensor, "backward", watched_backward)
        yield


def run_code(code: str, folder: Path) -> Run:
    folder.mkdir()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    names: dict[str, Any] = {"__name__": "page"}
    run = Run()
    with watched(run), contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
            patch.setenv(name, str(value))
        try:
            exec(code, names)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
    run.state = state_of(names["model"]) | {"generator": bits_of(torch.get_rng_state())}
    return run


@pytest.mark.parametrize("page", OF_ONE, ids=lambda page: page.stem)
def test_a_page_trains_as_without_reprise_and_inside_its_budget(page: Path, tmp_path: Path) -> None:
    lines = code_of(page).splitlines(keepends=True)
    plain = run_code("".join(line for line in lines if "reprise" not in line), tmp_path / "plain")
    planned = run_code("".join(lines), tmp_path / "planned")
    assert len(plain.losses) >= 4 and not plain.compiled
    assert planned.losses == plain.losses
    assert [name for name in plain.state if planned.state[name] != plain.state[name]] == []

    assert len(planned.peaks) == len(plain.losses)
    explanation = reprise.explain(planned.compiled[-1])
    assert explanation.budget_bytes is not None
    assert max(planned.peaks) <= explanation.budget_bytes < explanation.plain_peak_bytes
    assert explanation.recompute_ns > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_adds_one_line_and_fits_a_screen(page: Path) -> None:
    ours = [line for line in code_of(page).splitlines() if "reprise" in line]
    assert ours[0] == "import reprise"
    assert sum("reprise.compile(" in line for line in ours) == 1
    assert len(ours) <= 3
    assert len(page.read_text().splitlines()) <= MOST_LINES


# Those of ways to train in several processes run so in the tests of these ways.
@pytest.mark.parametrize(("name", "options"), [
    ("accelerate", {}), ("trainer", {}), ("pipeline", {"planned": "schedule"}),
    ("lightning", {"planned": "model.net", "change": ('"devices": 1', '"devices": 2, "strategy": "ddp"')})],
    ids=["accelerate", "trainer", "pipeline", "lightning"])
def test_a_page_runs_in_two_processes(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    run_page(name, tmp_path, **options)


def test_every_page_is_there() -> None:
    names = ["accelerate", "ddp", "fsdp", "lightning", "loops", "pipeline", "shard", "tensor_parallel", "trainer"]
    assert [page.stem for page in PAGES] == names
