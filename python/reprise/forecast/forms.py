"""The forms of a step, whole and in slices, each at any batch size.

A capture at a batch size is cut as a session would cut it. Where two captures are cut alike, the form follows at all other
sizes, as the whole step does.
"""

from __future__ import annotations

from ..native import _torch
from ..planning import WHOLE, FormKey
from ..show.preflight import Counts
from ..trace.dry_run import DryStep
from .batches import BatchFamily, Form, Line, Sized


class Forms:
    """The whole step, and the same in slices."""

    def __init__(self, whole: BatchFamily, use: bool | str, compare: bool) -> None:
        """compare: measures slices on the device and compares their bits with those of whole calls; otherwise they are
        expected to have them."""
        self.whole, self.use, self.compare = whole, use, compare
        self.steps: dict[int, DryStep] = {}  # the captures of the whole step, by batch size
        self.words = ""  # what was cut last, for people
        self._sliceable: dict[int, int] = {}  # bytes that can be cut, by batch size
        self._families: dict[FormKey, BatchFamily] = {}
        self._tried: set[tuple[FormKey, int]] = set()  # with batch sizes

    def learn(self, known: dict[str, tuple[int, int]]) -> None:
        for family in (self.whole, *self._families.values()):
            family.learn(known)

    def sliceable_bytes(self, batch: int) -> int:
        """Bytes of the chain of calls that would run in slices."""
        if not self.use:
            return 0
        for size, step in self.steps.items():
            if size not in self._sliceable:
                self._sliceable[size] = _torch.sliceable_bytes(step.step.captured.program, self.use)
        a, b = (sorted(self._sliceable, key=lambda size: abs(size - batch)) * 2)[:2]
        return max(0, Line(a, self._sliceable[a], b, self._sliceable[b]).at(batch))

    def at(self, key: FormKey, batch: int, *, roofline_times: bool = False) -> tuple[Form, Counts] | None:
        """The step in one form; None if it cannot be cut so, or if that is not known at this size."""
        family = self.whole if key == WHOLE else self._family(key, batch)
        if not family.has(batch) and (key != WHOLE and not family.has_line()):
            return None
        graph, costs, _, counts = family.at(batch, roofline_times=roofline_times)
        return (graph, costs), counts

    def _family(self, key: FormKey, wanted: int) -> BatchFamily:
        """The step in this form, cut where it was captured. If every size that is asked about is captured, the others need not be
        cut."""
        family = self._families.setdefault(key, BatchFamily(self.whole.capture, self.whole.device_type, self.whole.known))
        for batch, step in self.steps.items():
            if self.whole.is_quick() and batch != wanted:
                continue
            if (key, batch) in self._tried or not self.use:
                continue
            self._tried.add((key, batch))
            program = step.step.captured.program
            sliced = _torch.sliced_form(program, key, self.compare)
            if sliced is None:
                continue
            self.words = sliced.words
            if self.compare:
                sliced.measure()
                self.learn(_torch.CostBook(step.device).calls)
            family.captured[batch] = Sized.of_program(batch, sliced.program, step.outside_bytes, family.device_type,
                                                      sliced.signature)
        return family
