"""Which lengths and batches fit together.

A question about a model is asked again with inputs of other lengths, and with the length in the place of the batch size.
The step is traced once for all sizes where that is possible, so that each of them takes milliseconds instead of a capture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..errors import first_line
from ..progress import Progress
from ..show.preflight import AtLength, Fit, Lengths
from ..trace.joint_graph import EAGER
from .question import Question

SECONDS = 1.0  # for one search of a plan, of which there are many


def check(question: Question, lengths: Sequence[int], length_dim: int) -> None:
    if question.captures.own_size(length_dim) is None or length_dim == question.batch_dim:
        raise ValueError(f"length_dim={length_dim}: choose a dimension of the inputs that is not the batch size's")
    if any(length < 1 for length in lengths):
        raise ValueError(f"lengths={list(lengths)}: they have to be positive")
    if question.engine != EAGER:
        raise ValueError("lengths: kernels are generated for one size; use engine='eager'")


def which_fit(question: Question, lengths: Sequence[int], length_dim: int) -> Lengths:
    """For each length, the largest batch sizes; and for the batch size that was asked about, the largest lengths."""
    if question.profile != "measure":  # which needs every size by itself
        question.captures.trace_once([question.batch_dim, length_dim])
    question = dataclasses.replace(question, seconds=min(question.seconds, SECONDS), optimizer=None,  # It is in the reserve.
                                   shared=question.captures)
    rows = []
    with Progress("looking at length") as progress:
        for count, length in enumerate(lengths):
            progress(count, len(lengths))
            at_length = dataclasses.replace(question, sizes={length_dim: length})
            at_length.look()
            rows.append(AtLength(length, *at_length.largest()))
    limit = question.captures.limit(length_dim)
    try:
        by_length = dataclasses.replace(question, batch_dim=length_dim)
        by_length.look()
        longest = by_length.largest(None if limit is None else limit[0])
    except Exception as error:
        if question.captures.are_quick:
            raise
        # Lengths that the model does not accept are known beforehand only where it is traced for any size.
        return Lengths(rows, None, None, [f"the longest inputs are not known: {first_line(error)}"])
    plain, planned = (None if fit is None else _named(fit, question.batch) for fit in longest)
    notes = []
    if limit is not None and any(fit is not None and fit.length == limit[0] for fit in (plain, planned)):
        notes.append(f"the model cannot be called with a length above {limit[0]}: {limit[1]}")
    return Lengths(rows, plain, planned, notes)


def _named(fit: Fit, batch: int) -> Fit:
    """What was found with the length in the place of the batch size."""
    return dataclasses.replace(fit, batch=batch, length=fit.batch)
