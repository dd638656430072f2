"""Traces a step once for inputs of any size.

Dynamo and AOTAutograd trace with symbols in place of those sizes that are known to vary. What they decide about the
symbols on the way are guards: where these hold, the traced step is the step.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx.experimental._config as symbolic_config
from torch import Tensor, fx

from ..errors import RepriseError
from ..native import _torch
from .joint_graph import JointGraph
from .layouts import Layouts
from .sizes import Postfix, Sizes

Range = tuple[int, int | None]
Dim = tuple[int, int]  # the number of a tensor among the inputs, and a dimension of it


class NoFamily(RepriseError):
    """The step cannot be used at other sizes than those it was captured at."""


# Numbers of the model stay numbers, sizes that were not named stay as they are, and sizes that happen to be equal are
# not taken to be one.
TRACING: dict[str, Any] = {"specialize_float": True, "specialize_int": True, "automatic_dynamic_shapes": False,
                           "assume_static_by_default": True}


_MARKS = "_dynamo_weak_dynamic_indices", "_has_dynamo_dim_marking"


@contextlib.contextmanager
def varying(tensors: Sequence[Tensor], dims: Iterable[Dim]) -> Iterator[None]:
    """While this is active, torch.compile takes these sizes for symbols, unless the model depends on their numbers."""
    marked = {number for number, _ in dims}
    for number, dim in dims:
        torch._dynamo.maybe_mark_dynamic(tensors[number], dim)
    try:
        with symbolic_config.patch(use_duck_shape=False):  # type: ignore[attr-defined]
            yield
    finally:
        for number in marked:
            for mark in _MARKS:
                tensors[number].__dict__.pop(mark, None)


class AnySize:
    """A step that was traced with symbols."""

    def __init__(self, gm: fx.GraphModule, joint: JointGraph, name: str) -> None:
        """gm: the graph of the model's call, which Dynamo made."""
        self.sizes = Sizes(joint.primals)
        if not self.sizes.symbols:
            raise NoFamily("the model depends on the numbers of all sizes that vary")
        self.inputs = list(_inputs(gm))
        self.sources: dict[sympy.Symbol, tuple[str, int]] = {}  # an input and a dimension
        for source, shape in self.inputs:
            for dim, size in enumerate(shape):
                if isinstance(size, sympy.Symbol):
                    self.sources.setdefault(size, (source, dim))
        if unknown := [symbol for symbol in self.sizes.symbols if symbol not in self.sources]:
            raise NoFamily(f"the size {unknown[0]} is not one of an input")
        self.joint, self.name = joint, name
        self.env = next(p.fake_mode for p in joint.primals if hasattr(p, "fake_mode")).shape_env

    def family(self, layouts: Layouts, known_at: Sequence[int]) -> _torch.ProgramFamily:
        """known_at: the numbers of the symbols at the size where the layouts were found."""
        return self.joint.capture_for_any_size(self.name, self.sizes, layouts, known_at)

    def symbols_at(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int] | None:
        """The numbers that the symbols have for other inputs of the model; None if the step does not hold there."""
        frame = {"L": {"args": tuple(args), "kwargs": dict(kwargs)}}
        try:
            shapes = [tuple(eval(source, frame).shape) for source, _ in self.inputs]
        except (KeyError, IndexError, NameError, AttributeError):
            return None
        there = dict(zip((source for source, _ in self.inputs), shapes, strict=True))
        values = {symbol: there[source][dim] for symbol, (source, dim) in self.sources.items()}
        for (_, expected), shape in zip(self.inputs, shapes, strict=True):
            if shape != tuple(int(size.xreplace(values)) for size in expected):
                return None
        return [values[symbol] for symbol in self.sizes.symbols] if self._holds(values) else None

    def holds_at(self, symbols: Sequence[int]) -> bool:
        """Whether it is the same step where the symbols are these numbers."""
        return self._holds(dict(zip(self.sizes.symbols, symbols, strict=True)))

    def limits(self) -> tuple[list[Range], list[Postfix]]:
        """Where the step holds: for each symbol the least and the most, and expressions that are not 0."""
        ranges = []
        for symbol in self.sizes.symbols:
            bounds = self.env.var_to_range[symbol]
            ranges.append((int(bounds.lower), None if bounds.upper >= sys.maxsize - 1 else int(bounds.upper)))
        conditions = [self.env.replace(guard.expr) for guard in self.env.guards]
        return ranges, [self.sizes.condition(condition) for condition in conditions if condition != sympy.true]

    def source_of(self, symbol: int) -> tuple[int, int]:
        """The input whose size a symbol is, by its position, and the dimension. REQUIRES: inputs are given by position."""
        source, dim = self.sources[self.sizes.symbols[symbol]]
        position = re.fullmatch(r"L\['args'\]\[(\d+)\]", source)
        assert position is not None
        return int(position[1]), dim

    def words(self, symbol: int) -> str:
        """What a symbol is, for people: dimension 1 of input_ids."""
        source, dim = self.sources[self.sizes.symbols[symbol]]
        by_name, by_position = re.search(r"\['kwargs'\]\['(\w+)'\]", source), re.search(r"\['args'\]\[(\d+)\]", source)
        name = by_name[1] if by_name else f"input {by_position[1]}" if by_position else source
        return f"dimension {dim} of {name}"

    def _holds(self, values: dict[sympy.Symbol, int]) -> bool:
        for symbol, value in values.items():
            bounds = self.env.var_to_range.get(symbol)
            if bounds is not None and not bounds.lower <= value <= bounds.upper:
                return False
        # Sizes that turned out to be equal are one symbol by now.
        return all(self.env.replace(guard.expr).xreplace(values) == sympy.true for guard in self.env.guards)


def _inputs(gm: fx.GraphModule) -> Iterator[tuple[str, tuple[sympy.Expr, ...]]]:
    """The tensors that a call of the model passes, as Dynamo names them, and their sizes."""
    for node in gm.graph.find_nodes(op="placeholder"):
        fake, origin = node.meta.get("example_value"), getattr(node, "_dynamo_source", None)
        if not isinstance(fake, Tensor) or origin is None:
            continue
        name = origin.name
        source = str(name() if callable(name) else name)
        if source.startswith(("L['args']", "L['kwargs']")):
            yield source, tuple(size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
                                for size in fake.shape)
