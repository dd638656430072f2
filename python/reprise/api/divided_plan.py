"""model.plan of a model whose regions are planned one by one."""

from __future__ import annotations

from collections.abc import Callable

from torch.utils.hooks import RemovableHandle

from .. import _core, planning
from ..errors import RepriseError
from ..show.division import Division, Part
from .arguments import byte_count
from .region_steps import Divider, Step
from .session import StepSession
from .settings import Settings


class DividedPlan:
    """The plans of the latest step. Before the first call there are none, and `ready` is False."""

    def __init__(self, settings: Settings, divider: Divider) -> None:
        self.settings, self.divider = settings, divider
        self.sessions: list[StepSession] = []
        self.hooks: list[RemovableHandle] = []
        self.hold: object = None  # as long as this is there
        self.undo: list[Callable[[], None]] = []  # what gives the regions back

    def release(self) -> None:
        """Frees what plans keep between steps, and gives the regions back."""
        for session in self.sessions:
            session.runtime.release()
        for hook in self.hooks:
            hook.remove()
        for undo in self.undo:
            undo()
        self.hooks, self.undo = [], []

    @property
    def ready(self) -> bool:
        return self.divider.step is not None and bool(self.divider.step.chosen)

    @property
    def _step(self) -> Step:
        if not self.ready or self.divider.step is None:
            raise RepriseError("there is no plan yet: call the model once with gradients enabled")
        return self.divider.step

    @property
    def budget_bytes(self) -> int | None:
        return self.divider.budget_bytes

    def set_budget(self, budget: str | int | None) -> None:
        """Changes the budget from the next step on."""
        self.divider.set_budget(None if budget is None else byte_count("budget", budget))

    @property
    def peak_bytes(self) -> int:
        """Predicted peak of the latest step, from the call of its first region to the end of its backward: everything that is
        allocated on the device. The first step of its kind is not predicted, and has what was measured."""
        step = self._step
        return step.measured_bytes if step.predicted_bytes is None else step.predicted_bytes

    @property
    def measured_peak_bytes(self) -> int:
        """The same as the allocator counted it. On CUDA, in the first steps alone what is between two looks is seen, too."""
        return self._step.measured_bytes

    @property
    def time_ns(self) -> int:
        """The time of all regions."""
        return sum(choice.time_ns for choice in self._step.chosen)

    @property
    def recompute_ns(self) -> int:
        return sum(choice.recompute_ns for choice in self._step.chosen)

    @property
    def preparation_seconds(self) -> dict[str, float]:
        """What the first steps took before they ran, by phase."""
        return dict(self.settings.preparation.seconds)

    def explanation(self) -> Division:
        step = self._step
        parts = [Part(seen.name, choice.kept_bytes, choice.forward_bytes, choice.kept_bytes + choice.growth_bytes,
                      choice.time_ns, choice.recompute_ns) for seen, choice in zip(step.seen, step.chosen, strict=True)]
        return Division(self.settings.name, self.budget_bytes, self.peak_bytes, self.measured_peak_bytes,
                        self.divider.plain_peak_bytes, step.start_bytes, parts)

    def __repr__(self) -> str:
        if not self.ready:
            return "DividedPlan(not made yet)"
        percent = planning.recomputation_percent(self.recompute_ns, self.time_ns)
        return (f"DividedPlan({len(self._step.chosen)} regions, peak {_core.format_bytes(self.peak_bytes)}, recomputation "
                f"{percent:.1f} %)")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of the model is a plain model, which a process without Reprise can load."""
        return type(None), ()
