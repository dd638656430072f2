"""Tests reprise.preflight with lengths: what it says about lengths and batches is what training then shows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from test_preflight import real_peak
from torch import Tensor, nn

import reprise
from reprise import _core
from reprise.__main__ import main
from reprise.forecast import lengths as forecast
from reprise.forecast.question import last_inside
from reprise.native import _torch
from reprise.trace import dry_run


class Attends(nn.Module):
    """Attention whose weights are there whole, so that memory grows with the square of the length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.ask, self.head = nn.Embedding(50, 32), nn.Linear(32, 32), nn.Linear(32, 50)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        x = x + (self.ask(x) @ x.transpose(1, 2)).softmax(-1) @ x
        return nn.functional.cross_entropy(self.head(x.tanh()).flatten(0, 1), words.flatten())


class Placed(Attends):
    """Has places for 40 words."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(40, 32))

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) + self.places[:words.shape[1]]
        return self.head((x + self.ask(x)).tanh()).mean()


class Branches(Attends):
    """Does more with long inputs."""

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        if words.shape[1] > 20:
            x = torch.cat([self.ask(x).tanh(), self.ask(x).exp()], 1)
        return self.head(x).tanh().mean()


class Looks(Attends):
    """Looks at numbers, except in the code that it has for torch.compile."""

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        if not torch.compiler.is_compiling() and bool((words < 0).any()):
            x = -x
        return self.head(x).tanh().mean()


def words(batch: int, length: int) -> Tensor:
    return torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("kind", [Attends, Branches])
def test_the_longest_inputs_and_the_largest_batches_are_the_true_ones(kind: type[nn.Module],
                                                                       caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = kind().train()
    for size in ((8, 16), (12, 16), (8, 23), (12, 31)):  # Then the workspaces of its calls are known.
        reprise.compile(model)(words(*size)).backward()
    reprise.restore(model)
    budget = 3 * real_peak(model, words(8, 16))
    with caplog.at_level(logging.INFO, "reprise"):
        found = reprise.preflight(model, words(8, 16), budget, planning_seconds=0.1, lengths=[16, 31])
    lengths = found.lengths
    assert lengths is not None
    messages = [record.getMessage() for record in caplog.records]
    traced = next(i for i, message in enumerate(messages) if "traced for any size" in message)
    assert any("captured at" in message for message in messages[traced:]) == (kind is Branches)
    assert lengths.longest_plain.batch == 8
    truth = last_inside(lambda n: real_peak(model, words(8, n)), budget, 30)
    assert lengths.longest_plain.length == pytest.approx(truth, rel=0.03, abs=1)
    for row in lengths.rows:
        truth = last_inside(lambda n, at=row.length: real_peak(model, words(n, at)), budget, 30)
        assert row.largest_plain.batch == pytest.approx(truth, rel=0.03, abs=1), row.length
        assert row.largest_planned.batch > row.largest_plain.batch
    assert lengths.rows[0].largest_plain.batch == found.largest_plain.batch
    longest = lengths.longest_planned.length
    assert longest > lengths.longest_plain.length
    compiled = reprise.compile(kind().train(), budget, planning_seconds=2)
    compiled(words(8, int(0.95 * longest))).backward()
    assert compiled.plan.measured_peak_bytes <= budget
    with pytest.raises(reprise.InfeasibleBudget):
        reprise.compile(kind().train(), budget, planning_seconds=2)(words(8, int(1.3 * longest)))


def test_a_model_that_takes_no_longer_inputs_says_so() -> None:
    found = reprise.preflight(Placed(), words(4, 16), "1GiB", profile="roofline", largest=False, lengths=[])
    assert found.lengths.longest_plain.length == found.lengths.longest_planned.length == 40
    assert "cannot be called with a length above 40" in str(found)
    assert "Longest at batch 4: plain 40, planned 40." in str(found)


def test_a_step_that_cannot_be_traced_with_symbols_is_captured_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AttributeError("no symbols")

    monkeypatch.setattr(dry_run, "DryFamily", refuse)
    found = reprise.preflight(Placed(), words(4, 16), "1MB", profile="roofline", planning_seconds=0.1, largest=False, lengths=[8])
    assert found.lengths.rows[0].largest_planned.batch > 4
    assert found.lengths.longest_planned is None
    assert "the longest inputs are not known" in str(found)


def test_a_model_with_code_for_torch_compile_is_traced_once_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reprise"):
        found = reprise.preflight(Looks(), words(4, 16), "1MB", profile="roofline", planning_seconds=0.1, largest=False,
                                  lengths=[])
    assert found.lengths.longest_planned.length >= found.lengths.longest_plain.length > 16
    assert any("traced for any size" in record.getMessage() for record in caplog.records)


def test_a_length_with_which_not_one_sample_fits_is_shown() -> None:
    found = reprise.preflight(Attends(), words(4, 16), 200_000, profile="roofline", planning_seconds=0.1, largest=False,
                              lengths=[400, 16])
    none, some = found.lengths.rows
    assert none.largest_plain is None and none.largest_planned is None and some.largest_planned.batch > 0
    assert [line.split() for line in str(found).splitlines() if line.startswith("  400")] == [["400", "none", "none"]]


def test_lengths_that_were_measured_are_known(own_cache: Path) -> None:
    found = reprise.preflight(Attends(), words(4, 16), "1MB", profile="measure", planning_seconds=0.1, slices=False,
                              lengths=[8])
    assert found.counts.estimated == 0
    assert found.lengths.rows[0].largest_plain.batch > found.largest_plain.batch


@pytest.mark.parametrize(("options", "message"), [
    ({"lengths": [16], "length_dim": 0}, "length_dim=0"), ({"lengths": [16], "length_dim": 2}, "length_dim=2"),
    ({"lengths": [0]}, "positive"), ({"lengths": [8], "engine": "fused"}, "engine='eager'")])
def test_what_cannot_be_asked_is_said_before_anything_is_captured(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reprise.preflight(Attends(), words(4, 16), "1MB", **options)


def factory(size: int) -> tuple[nn.Module, Tensor]:
    return Attends(), words(size, 16)


def test_the_command_takes_lengths(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "SECONDS", 0.1)
    assert main(["preflight", f"{__name__}:factory", "--batch", "4", "--budget", "1MB", "--profile", "roofline",
                 "--no-largest", "--lengths", "8,16"]) == 0
    assert "Longest at batch 4" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["preflight", f"{__name__}:factory", "--batch", "4", "--budget", "1MB", "--lengths", "8,many"])
    assert "lengths" in capsys.readouterr().err


def test_sizes_of_more_than_32_bits_are_those_of_a_capture_there() -> None:
    """Nothing has memory, so the tensors may be larger than any machine: the attention has 2^37 numbers and 2^39 bytes."""
    model = Attends().train()
    cpu = torch.device("cpu")
    like = dry_run.capture(model, ((words(8, 16),), {}), cpu, {})
    family = dry_run.DryFamily(model, ((words(8, 16),), {}), like, {}, lambda tensor: range(tensor.dim()))

    def resize(tensor: Tensor) -> tuple[int, ...]:
        return (8, 1 << 17)

    member = family.at(resize)
    assert member is not None
    there = dry_run.capture(model, ((words(8, 16),), {}), cpu, {}, resize)
    assert member.step.captured.program.difference(there.step.captured.program) is None
    costs = _core.Costs.from_capsule(_torch.bare_costs(member.step.captured.program))
    assert max(costs.value_bytes) == 4 * 8 * (1 << 34)


def test_sizes_that_64_bits_cannot_hold_are_an_error_and_no_number() -> None:
    model = Attends().train()
    like = dry_run.capture(model, ((words(8, 16),), {}), torch.device("cpu"), {})
    family = dry_run.DryFamily(model, ((words(8, 16),), {}), like, {}, lambda tensor: range(tensor.dim()))
    program = family._family
    assert program.at([8, 1 << 17]).resident_bytes > 0
    with pytest.raises(ValueError, match="too large"):
        program.at([8, 1 << 40])
