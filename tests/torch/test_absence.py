"""Processes that train together: where one of them has ended, or waits somewhere else, the error of the others names it."""

from __future__ import annotations

from pathlib import Path

import absence_cases as cases
import pytest
from several_processes import results_of


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"))[0]


def test_a_rank_that_does_not_call_the_model_is_named(waiting: dict) -> None:
    name, message = waiting["call"]
    assert name == "RankAbsent"
    assert message.startswith("rank 1 does not answer: it has ended, or waits somewhere else (after ")


def test_a_rank_that_does_not_call_backward_is_named(waiting: dict) -> None:
    assert waiting["backward"] == waiting["again"]  # who has been missed once is not waited for again
    name, message = waiting["backward"]
    assert name == "RankAbsent" and message.startswith("rank 1 does not answer")
    assert waiting["gradients"] == 0


def test_a_rank_that_has_ended_is_named(tmp_path: Path) -> None:
    found = results_of(cases.run_and_end, tmp_path)[0]
    assert set(found) == set(cases.KINDS)
    for name, message in found.values():
        assert name == "RankAbsent"
        assert message.startswith("rank 1 does not answer") and "start all of them again" in message
