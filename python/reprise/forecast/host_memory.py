"""The host's memory, in which steps on an accelerator may store values until backward reads them."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core


@dataclass(frozen=True)
class HostMemory:
    """How many bytes of it steps may use, and the way there."""

    budget_bytes: int
    link: _core.Link  # as plans are made for it

    def beside(self, costs: _core.Costs) -> _core.Costs:
        return _core.Costs(costs.time_ns, costs.workspace_bytes, costs.value_bytes, self.link)
