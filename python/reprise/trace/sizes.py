"""Numbers of a step that follow from the sizes of its inputs, as expressions for the runtime.

A step that is traced with symbols in place of some sizes has expressions over these symbols where a step of one size has
numbers. A ProgramFamily names the expressions and computes them for any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions

from ..errors import Unsupported
from ..native import _torch

Postfix = list[tuple[str, int]]

_OF_TWO = {functions.FloorDiv: "divide", functions.CleanDiv: "divide", functions.Mod: "modulo", functions.PythonMod: "modulo"}
_OF_MANY = {sympy.Add: "add", sympy.Mul: "multiply", functions.Max: "maximum", functions.Min: "minimum",
            sympy.Max: "maximum", sympy.Min: "minimum"}
_ROUNDED = functions.CeilToInt, functions.FloorToInt


class Sizes:
    """The symbols of a traced step, and the names of the expressions over them."""

    def __init__(self, primals: Sequence[Any]) -> None:
        self.sources: dict[sympy.Symbol, tuple[int, int | None]] = {}  # an input that is the size; or an input and a dimension
        for position, primal in enumerate(primals):
            if isinstance(primal, torch.SymInt):
                self._add(primal, position, None)
        for position, primal in enumerate(primals):
            for dim, size in enumerate(primal.shape if isinstance(primal, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt):
                    self._add(size, position, dim)
        self.symbols = list(self.sources)
        self.names: dict[sympy.Expr, int] = {}

    def _add(self, size: torch.SymInt, position: int, dim: int | None) -> None:
        expression = size.node.expr
        if isinstance(expression, sympy.Symbol):
            self.sources.setdefault(expression, (position, dim))

    def of(self, inputs: Sequence[Any]) -> list[int]:
        """The sizes that a call of the step has."""
        return [inputs[position] if dim is None else inputs[position].shape[dim] for position, dim in self.sources.values()]

    def at(self, numbers: Sequence[int]) -> Callable[[Any], Any]:
        """What expressions are where the symbols are these numbers."""
        values = dict(zip(self.symbols, numbers, strict=True))
        known: dict[sympy.Expr, int] = {}

        def number(size: Any) -> Any:
            if not isinstance(size, torch.SymInt):
                return size
            expression = size.node.expr
            if expression not in known:
                known[expression] = int(expression.xreplace(values))
            return known[expression]

        return number

    def number(self, family: _torch.ProgramFamily, number: Any) -> Any:
        """The number itself, or the name of its expression."""
        if isinstance(number, (torch.SymFloat, torch.SymBool)):
            raise Unsupported(f"a number with a point, or a choice, depends on the sizes of the inputs: {number}")
        if not isinstance(number, torch.SymInt):
            return number
        expression = number.node.expr
        if expression.is_Integer:
            return int(expression)
        if expression not in self.names:
            self.names[expression] = family.size(self._postfix(expression))
        return self.names[expression]

    def condition(self, condition: sympy.Basic) -> Postfix:
        """An expression that is 1 where the condition holds, and 0 elsewhere."""
        if condition in (sympy.true, sympy.false):
            return [("constant", int(condition == sympy.true))]
        parts = condition.args
        if isinstance(condition, sympy.Not):
            return _negated(self.condition(parts[0]))
        if isinstance(condition, (sympy.And, sympy.Or)):
            code = self.condition(parts[0])
            for part in parts[1:]:
                code += [*self.condition(part), ("minimum" if isinstance(condition, sympy.And) else "maximum", 0)]
            return code
        if not isinstance(condition, sympy.core.relational.Relational):
            raise Unsupported(f"a condition on sizes is of a kind that is not known here: {condition}")
        left, right = self._postfix(parts[0]), self._postfix(parts[1])
        if isinstance(condition, (sympy.Eq, sympy.Ne)):
            equal: Postfix = [*left, *right, ("equal", 0)]
            return equal if isinstance(condition, sympy.Eq) else _negated(equal)
        if isinstance(condition, (sympy.StrictLessThan, sympy.GreaterThan)):
            less: Postfix = [*left, *right, ("less", 0)]
            return less if isinstance(condition, sympy.StrictLessThan) else _negated(less)
        greater: Postfix = [*right, *left, ("less", 0)]
        return greater if isinstance(condition, sympy.StrictGreaterThan) else _negated(greater)

    def _postfix(self, expression: sympy.Expr) -> Postfix:
        if expression.is_Integer:
            return [("constant", int(expression))]
        if expression in self.sources:
            return [("symbol", self.symbols.index(expression))]
        kind, parts = type(expression), expression.args
        if isinstance(expression, sympy.Pow) and parts[1].is_Integer and parts[1] > 0:
            kind, parts = sympy.Mul, (parts[0],) * int(parts[1])
        if kind in _ROUNDED and isinstance(parts[0], functions.IntTrueDiv):
            return self._rounded_quotient(parts[0], is_up=kind is functions.CeilToInt)
        if kind in _OF_TWO:
            return [*self._postfix(parts[0]), *self._postfix(parts[1]), (_OF_TWO[kind], 0)]
        if kind in _OF_MANY:
            code = self._postfix(parts[0])
            for part in parts[1:]:
                code += [*self._postfix(part), (_OF_MANY[kind], 0)]
            return code
        raise Unsupported(f"a size is computed in a way that is not known here: {expression}")

    def _rounded_quotient(self, quotient: sympy.Expr, is_up: bool) -> Postfix:
        dividend, divisor = quotient.args
        sign: Postfix = [("constant", -1), ("multiply", 0)] if is_up else []
        return [*self._postfix(dividend), *sign, *self._postfix(divisor), ("divide", 0), *sign]


def _negated(condition: Postfix) -> Postfix:
    return [*condition, ("constant", 0), ("equal", 0)]
