"""A list of architectures, small, for the question which models train inside a budget.

    architecture = ARCHITECTURES["mixtral"]
    model = architecture.make_model()
    args, kwargs = architecture.make_inputs()
    architecture.loss(model(*args, **kwargs)).backward()
"""

from __future__ import annotations

from .build import Architecture
from .mixed import MIXED
from .packages import PACKAGES
from .text import TEXT
from .vision import VISION

ARCHITECTURES: dict[str, Architecture] = {each.name: each for each in (*TEXT, *VISION, *MIXED, *PACKAGES)}
