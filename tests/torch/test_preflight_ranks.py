"""reprise.preflight for one of many processes after reprise.shard, in one process. tests/torch/test_shard.py compares what it
says with two processes that train."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from steps import CPU
from torch import Tensor, nn

import reprise
from reprise.__main__ import main
from reprise.native import _torch
from reprise.show.preflight import Preflight

WIDTH, RANKS, BYTES_PER_S = 256, 64, 10**8
LATENCY_NS = 200_000  # of a collective between CPUs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(3, 1))  # which nothing divides

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(x))) * self.scale[1]


def model(device: str | None = None) -> nn.Module:
    with torch.device(device or "cpu"):
        return nn.Sequential(*(Block() for _ in range(4)))


def inputs(rows: int = 16) -> Tensor:
    return torch.randn(rows, WIDTH)


def factory(size: int) -> tuple[nn.Module, Tensor]:
    """The factory that the test of the command line names."""
    return model(), inputs(size)


def ask(budget: str | int = "1GiB", **options: Any) -> Preflight:
    asked = {"ranks": RANKS, "bandwidth": BYTES_PER_S, "profile": "roofline", "planning_seconds": 2, "largest": False}
    return reprise.preflight(options.pop("model", None) or model(), inputs(), budget, **{**asked, **options})


WEIGHTS, BIAS, SCALE = 4 * 2 * WIDTH * 2 * WIDTH, 4 * WIDTH, 4 * 3  # bytes of a block


def test_64_ranks_are_asked_about_in_one_process() -> None:
    _torch.install_meter()
    _torch.reset_peak(CPU)
    entry = _torch.allocated_bytes(CPU)
    whole, given = model(), inputs()
    there = _torch.allocated_bytes(CPU) - entry
    found = reprise.preflight(whole, given, "1GiB", ranks=RANKS, bandwidth=BYTES_PER_S, profile="roofline", largest=False)
    assert not dist.is_initialized()
    assert _torch.peak_bytes(CPU) - entry < there + 32768  # These are states of generators.
    assert all(type(p) is nn.Parameter and p.grad is None for p in whole.parameters())
    assert type(whole[0]) is Block
    assert found.exchange is not None and found.fits
    assert "Block" not in str(found) and "one cpu of 64" in str(found) and "64 ranks" in str(found)


def test_what_a_rank_sends_is_what_a_ring_moves() -> None:
    """A parameter that is divided is gathered, and its gradient is reduced to a part; the gradient of one that is not makes both
    ways."""
    found = ask().exchange
    assert found is not None
    divided = 4 * (WEIGHTS + BIAS)
    assert found.gathers == 4 * 3 and found.gathers_again == 0
    expected = 2 * divided * (RANKS - 1) // RANKS + 2 * 4 * (SCALE - SCALE // RANKS)
    assert found.sent_bytes == expected
    assert found.time_ns == pytest.approx(LATENCY_NS * 4 * (3 + 3 + 1) + 1e9 * expected / BYTES_PER_S, rel=1e-6)


def test_communication_goes_on_beside_other_ops() -> None:
    found = ask()
    assert found.exchange is not None
    assert 0 < found.exchange.exposed_ns < found.exchange.time_ns
    assert found.planned.time_ns < found.plain.time_ns  # type: ignore[operator]
    assert f"for {found.exchange.exposed_ns / 1e6:.1f} ms of them nothing runs beside" in str(found)


def test_a_slower_network_makes_the_step_longer_and_not_larger() -> None:
    fast, slow = ask(), ask(bandwidth=BYTES_PER_S // 2)
    assert fast.exchange is not None and slow.exchange is not None
    sent_ns = 1e9 * fast.exchange.sent_bytes / BYTES_PER_S
    assert slow.plain.peak_bytes == fast.plain.peak_bytes
    assert slow.planned.time_ns > fast.planned.time_ns  # type: ignore[operator]
    assert slow.exchange.exposed_ns > fast.exchange.exposed_ns
    assert slow.plain.time_ns - fast.plain.time_ns == pytest.approx(sent_ns, rel=1e-6)  # type: ignore[operator]


def test_more_ranks_hold_less() -> None:
    few, many = ask(ranks=2), ask(ranks=4)
    parts = 4 * (WEIGHTS + BIAS) * (1 / 2 - 1 / 4)
    # Parameters are there in parts, and some gradients; what is gathered stays as large.
    assert parts <= few.plain.peak_bytes - many.plain.peak_bytes < 2 * parts


def test_the_optimizer_keeps_state_of_the_parts() -> None:
    whole = model()
    adam = torch.optim.Adam(whole.parameters())
    bare, more = ask(model=whole), ask(model=whole, optimizer=adam)
    state = 4 * (2 * (WEIGHTS + BIAS) // RANKS + 2 * SCALE + 4 * 4)  # and a count of steps for each
    assert more.plain.peak_bytes - bare.plain.peak_bytes == state


def test_a_small_budget_gathers_again() -> None:
    roomy = ask()
    assert roomy.exchange is not None
    found = ask(roomy.exchange.smallest_budget_bytes)
    assert found.exchange is not None
    assert found.fits and not found.plain.fits and found.exchange.gathers_again > 0
    assert found.exchange.smallest_budget_bytes <= found.planned.peak_bytes <= roomy.exchange.smallest_budget_bytes
    assert found.exchange.sent_bytes > roomy.exchange.sent_bytes
    assert found.planned.time_ns - roomy.planned.time_ns >= found.exchange.exposed_ns - roomy.exchange.exposed_ns  # type: ignore
    assert "reprise.shard and reprise.compile(model, budget=" in str(found)
    refused = ask(1000)
    assert refused.exchange is not None
    assert not refused.fits and refused.exchange.smallest_budget_bytes == refused.planned.peak_bytes
    assert refused.exchange.sent_bytes == roomy.exchange.sent_bytes


def test_narrow_gathers_and_wide_gradients() -> None:
    found, full = ask(param_dtype=torch.bfloat16, reduce_dtype=torch.float32).exchange, ask().exchange
    assert found is not None and full is not None
    assert found.sent_bytes == pytest.approx(full.sent_bytes * 3 / 4, rel=1e-3)


def test_parameters_that_every_rank_holds() -> None:
    found = ask(placement="replicate").exchange
    assert found is not None
    whole = 4 * (WEIGHTS + BIAS + SCALE)
    assert found.gathers == 0 and found.sent_bytes == pytest.approx(2 * whole * (RANKS - 1) / RANKS, rel=1e-4)


def test_a_model_without_memory_and_a_device_that_is_not_here() -> None:
    found = ask(model=model("meta"), device="cuda" if not torch.cuda.is_available() else "cpu")
    assert found.fits and found.exchange is not None
    if not torch.cuda.is_available():
        assert found.exchange.time_ns == pytest.approx(20_000 * 28 + 1e9 * found.exchange.sent_bytes / BYTES_PER_S, rel=1e-6)


def test_the_largest_batch_and_the_longest_inputs_are_those_of_a_rank() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.block, self.head = nn.Embedding(128, 64), nn.Linear(64, 64), nn.Linear(64, 128)

        def forward(self, words: Tensor) -> Tensor:
            return self.head(torch.tanh(self.block(self.embed(words))))

    words = torch.randint(0, 128, (4, 32))
    options: dict[str, Any] = {"profile": "roofline", "planning_seconds": 1, "lengths": [32, 64]}
    alone = reprise.preflight(Words(), words, 500_000, **options)
    found = reprise.preflight(Words(), words, 500_000, ranks=64, bandwidth="1GB", **options)
    assert found.largest_plain is not None and alone.largest_plain is not None
    assert found.largest_planned is not None and found.largest_planned.batch > found.largest_plain.batch
    assert found.lengths is not None
    assert found.lengths.rows[0].largest_plain is not None and found.lengths.rows[1].largest_plain is not None
    assert found.lengths.rows[0].largest_plain.batch == pytest.approx(found.largest_plain.batch, abs=1)
    assert found.lengths.rows[1].largest_plain.batch == pytest.approx(found.largest_plain.batch / 2, abs=1)


def test_a_curve_is_that_of_a_rank() -> None:
    roomy = ask(profile="measure")
    curve = reprise.curve(model(), inputs(), ranks=RANKS, bandwidth=BYTES_PER_S, planning_seconds=2)
    assert curve.plain.peak_bytes <= roomy.planned.peak_bytes  # A plan with room begins gathers early.
    assert curve.plain.time_ns > roomy.exchange.exposed_ns  # type: ignore[union-attr]
    assert min(point.peak_bytes for point in curve.points) < roomy.planned.peak_bytes
    assert "one of 64 processes" in str(curve)
    graph, costs = reprise.parse_graph((Path(__file__).parents[1] / "cli/data/chain.graph.json").read_text(), source="chain")
    with pytest.raises(ValueError, match="ranks=64 is for a model"):
        reprise.curve(graph, costs, ranks=64, bandwidth="1GB")


@pytest.mark.parametrize(("options", "message"), [
    ({"bandwidth": None}, r'ranks=64 needs bandwidth=.*such as bandwidth="50GB"'),
    ({"bandwidth": "fast"}, "bandwidth: "),
    ({"bandwidth": 0}, "bandwidth=0: it has to be more than 0"),
    ({"ranks": 0}, "ranks=0: give the number of processes"),
    ({"ranks": 2.5}, r"ranks=2\.5: give the number of processes"),
    ({"ranks": None}, "bandwidth=100000000 is for many processes: also give ranks="),
    ({"ranks": None, "bandwidth": None, "param_dtype": torch.bfloat16}, "param_dtype=torch.bfloat16 is for many processes"),
    ({"placement": "hybrid"}, "'hybrid': choose 'shard' or 'replicate'"),
], ids=lambda value: ",".join(value) if isinstance(value, dict) else "")
def test_wrong_arguments_say_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(**options)


def compiled() -> nn.Module:
    return reprise.compile(model(), "1GiB")


@pytest.mark.parametrize(("made", "options", "message"), [
    (model, {"engine": "fused"}, "engine='fused' is not supported with distributed parameters"),
    (lambda: nn.LSTM(4, 4), {}, "LSTM.* cannot be sharded"),
    (compiled, {}, "call reprise.shard before reprise.compile"),
], ids=["fused", "LSTM", "compiled"])
def test_what_cannot_be_sharded_is_refused_here_too(made: Callable[[], nn.Module], options: dict[str, Any],
                                                     message: str) -> None:
    with pytest.raises(reprise.Unsupported, match=message):
        ask(model=made(), **options)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    asked = ["preflight", "test_preflight_ranks:factory", "--batch", "8", "--profile", "roofline", "--no-largest", "--budget",
             "1GiB", "--ranks", "8"]
    assert main([*asked, "--bandwidth", "1GB", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["exchange"]["ranks"] == 8 and answer["exchange"]["bytes_per_s"] == 10**9
    assert main([*asked, "--bandwidth", "1GB", "--json", "--param-dtype", "bfloat16", "--reduce-dtype", "float32"]) == 0
    narrow = json.loads(capsys.readouterr().out)
    assert narrow["exchange"]["sent_bytes"] == pytest.approx(answer["exchange"]["sent_bytes"] * 3 / 4, rel=1e-3)
    with pytest.raises(SystemExit):
        main([*asked, "--bandwidth", "1GB", "--param-dtype", "float33"])
    assert "'float33' is not a type of numbers" in capsys.readouterr().err
    assert main(asked) == 3
    assert "needs bandwidth" in capsys.readouterr().err
