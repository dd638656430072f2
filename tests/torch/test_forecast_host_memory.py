"""Forecasts with values in the host's memory, for a GPU that is not here."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import reprise
from reprise.__main__ import main

WIDTH, BATCH = 1024, 4096


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def asked(**options: Any) -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    with torch.device("meta"):
        return Deep(), torch.zeros(BATCH, WIDTH), {"device": "cuda", "profile": "roofline", "planning_seconds": 20, **options}


HOST = {"host_budget": "4GiB", "link": "400GB"}


@pytest.fixture(scope="module")
def curves() -> tuple[reprise.TimeMemoryCurve, reprise.TimeMemoryCurve]:
    model, x, options = asked()
    return reprise.curve(model, x, **options), reprise.curve(model, x, **options, **HOST)


def test_a_curve_with_the_hosts_memory_is_nowhere_slower(curves: tuple[reprise.TimeMemoryCurve, reprise.TimeMemoryCurve]) -> None:
    without, beside = curves
    assert not without.stopped and not beside.stopped
    faster = 0
    for point in without:
        there = beside.at(point.peak_bytes)
        assert there is not None and there.time_ns <= point.time_ns
        faster += there.time_ns < point.time_ns
    assert faster > len(without) / 2
    assert any(point.host_bytes > 0 for point in beside) and not any(point.host_bytes for point in without)
    assert all(point.host_bytes <= 4 << 30 for point in beside)
    assert "in the host's memory" in str(beside)


def test_preflight_says_what_a_step_stores_there(curves: tuple[reprise.TimeMemoryCurve, reprise.TimeMemoryCurve]) -> None:
    without, _ = curves
    budget = (without.points[0].peak_bytes + without.plain.peak_bytes) // 2
    model, x, options = asked()
    plain, helped = (reprise.preflight(model, x, budget, **options, **more, largest=False) for more in ({}, HOST))
    assert plain.planned.fits and helped.planned.fits and helped.planned.peak_bytes <= budget
    assert plain.planned.time_ns is not None and helped.planned.time_ns is not None
    assert helped.planned.time_ns < plain.planned.time_ns
    assert 0 < helped.planned.host_bytes <= 4 << 30 and plain.planned.host_bytes == 0
    assert "in the host's memory" in str(helped) and 'host_budget="4.00 GiB"' in str(helped)
    assert helped.largest_planned is None


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"device": "cpu", **HOST}, ValueError, "host_budget needs an accelerator"),
    ({"link": "50GB"}, ValueError, "also give host_budget="),
    ({"host_budget": "1GiB"}, ValueError, "host_budget needs link="),
    ({"host_budget": "1GiB", "link": ("50GB", 0)}, ValueError, "two of them, to the host and back"),
    ({**HOST, "ranks": 4, "bandwidth": "50GB"}, reprise.Unsupported, "leave it out")],
    ids=["cpu", "no host", "no link", "no way back", "ranks"])
def test_bad_questions(options: dict[str, Any], error: type[Exception], message: str) -> None:
    model, x, others = asked()
    with pytest.raises(error, match=message):
        reprise.preflight(model, x, "1GiB", **{**others, **options})


def factory(batch: int) -> tuple[nn.Module, torch.Tensor]:
    model, _, _ = asked()
    return model, torch.zeros(batch, WIDTH, device="meta")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["preflight", f"{__name__}:factory", "--batch", str(BATCH), "--budget", "180MiB", "--device", "cuda", "--profile",
               "roofline", "--no-largest", "--host-budget", "4GiB", "--link", "400GB", "--json"]
    assert main(command) in (0, 1)
    assert json.loads(capsys.readouterr().out)["host_budget_bytes"] == 4 << 30
