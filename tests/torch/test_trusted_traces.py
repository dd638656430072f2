"""Tests that a step whose capture takes results from AOTAutograd is the one whose calls are all run again on fake tensors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from models.zoo import CASES
from steps import inputs_of, model_of
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from reprise.native import _torch
from reprise.trace import capture
from reprise.trace.capture import Capture
from reprise.trace.joint_graph import JointGraph
from reprise.trace.layouts import Layout, Layouts, layout_key
from reprise.trace.step_capture import capture_step

AROUND = {"fp32": contextlib.nullcontext, "autocast": lambda: torch.autocast("cpu", torch.bfloat16)}


def captured(joint: JointGraph, layouts: Layouts) -> tuple[Capture, tuple[str, Any, Any]]:
    """What a capture found out, and the program as text with its keys and the questions about layouts."""
    run = Capture(joint.module, joint.primals, joint.tangents, joint.num_forward_outputs, joint.device, "step", layouts,
                  operands=joint.operands)
    made = run.run()
    count = len(joint.primals)
    return run, (_torch.format_program(made.program, [], list(range(count)), [-1] * count), made.keys, made.asked)


def turned(made: Tensor) -> Layout:
    """A tensor whose dimensions lie in another order than those of any fake tensor here."""
    strides, numbers = [0] * made.dim(), 1
    for dim in (*range(1, made.dim()), 0)[::-1] if made.dim() == 2 else (1, *range(made.dim() - 1, 1, -1), 0):
        strides[dim], numbers = numbers, numbers * made.shape[dim]
    return str(made.dtype).removeprefix("torch."), list(made.shape), strides, 0, numbers * made.element_size(), "cpu"


def other_layouts(run: Capture, every: int) -> Layouts:
    """For some of the calls that make one tensor of several dimensions, in memory of its own."""
    known: set[int] = set()
    found: Layouts = {}
    for node, made in run.env.items():
        fresh = {t.untyped_storage()._cdata for t in tree_leaves(made) if isinstance(t, Tensor)} - known
        known |= fresh
        if fresh and node.op == "call_function" and isinstance(made, Tensor) and made.dim() > 1:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), run.env.__getitem__)
            found[layout_key(node.target, args, kwargs)] = [turned(made)]
    return dict(list(found.items())[::every])


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", ["dropout_mlp", "inplace_views", "hf_gpt2"])
def test_the_step_is_the_same(monkeypatch: pytest.MonkeyPatch, name: str, around: str) -> None:
    model = model_of(CASES[name])
    args, kwargs = inputs_of(model, CASES[name])
    with AROUND[around]():
        joint = capture_step(model, args, kwargs, name, layouts={}).joint
    layouts: list[Layouts] = [{}]
    for known in layouts:
        monkeypatch.setenv("REPRISE_TRUST_TRACES", "0")
        captured(joint, known)  # From now on, PyTorch has all fake results in its cache.
        run, again = captured(joint, known)
        monkeypatch.setenv("REPRISE_TRUST_TRACES", "1")
        assert captured(joint, known)[1] == again
        if not known:
            layouts += [other_layouts(run, every) for every in (1, 5)]


class Twice(nn.Module):
    """Its weight is cast once and used by two layers, where AOTAutograd traces two casts; dropout is lowered."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.weight).relu()
        return nn.functional.linear(nn.functional.dropout(y, 0.5), self.weight).float().square().mean()


def test_calls_that_were_changed_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with AROUND["autocast"]():
        joint = capture_step(Twice(), (torch.zeros(4, 6),), {}, "step", layouts={}).joint
    counts = []
    for trusts in (False, True):
        monkeypatch.setenv("REPRISE_TRUST_TRACES", str(int(trusts)))
        calls: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(capture, "fake_results", _noting(capture.fake_results, calls))
            counts.append((captured(joint, {})[1], calls))
    (again, every), (trusted, few) = counts
    assert again == trusted
    changed = [node for node in joint.module.graph.nodes if node.op == "call_function" and node.target.__name__ != "getitem"
               and joint.operands.get(node) != (node.target, node.all_input_nodes)]
    assert 0 < len(changed) <= len(few) < len(every)


def _noting(call: Any, calls: list[Any]) -> Any:
    def noted(*args: Any) -> Any:
        calls.append(args[0])
        return call(*args)

    return noted
