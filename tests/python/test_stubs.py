"""Compares the stubs with the native modules: names, members, and the parameters that pybind11 writes into docstrings."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reprise import _core
from reprise.native import _torch

PACKAGE = Path(__file__).resolve().parents[2] / "python/reprise"


@pytest.mark.parametrize("module", [_core, _torch])
def test_stub_tells_what_the_module_has(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    assert in_stub(ast.parse((PACKAGE / f"{name}.pyi").read_text()).body) == in_module(module)


def is_told(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def in_stub(nodes: Iterable[ast.stmt]) -> dict[str, Any]:
    """What a stub has, by name: the members of a class, the parameters of each overload, or whether a value can be written."""
    found: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found[node.name] = in_stub(node.body)
        elif isinstance(node, ast.FunctionDef) and is_told(node.name):
            is_property = "property" in map(ast.unparse, node.decorator_list)
            found[node.name] = "read" if is_property else sorted([*found.get(node.name, ()), parameters(node)])
        elif isinstance(node, ast.AnnAssign) and is_told(ast.unparse(node.target)):
            found[ast.unparse(node.target)] = "read" if "ClassVar" in ast.unparse(node.annotation) else "written"
    return found


def in_module(owner: ModuleType | type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in vars(owner).items():
        if not is_told(name):
            continue
        if isinstance(member, type):
            found[name] = in_module(member)
        elif callable(getattr(owner, name)):
            overloads = sorted(map(parameters, signatures(name, getattr(owner, name).__doc__)))
            if overloads or name != "__init__":  # A class that Python cannot construct has an __init__ without a signature.
                found[name] = overloads
        else:
            found[name] = "written" if getattr(member, "fset", None) else "read"
    return found


def signatures(name: str, doc: str) -> Iterable[ast.FunctionDef]:
    for line in re.findall(rf"^(?:\d+\. )?({name}\(.*\) -> .*)$", doc, re.MULTILINE):
        node = ast.parse(f"def {line.replace('::', '.')}: ...").body[0]  # A class that is bound later has its C++ name here.
        assert isinstance(node, ast.FunctionDef)
        if node.args.kwarg:  # The options of solve and of curve; curve takes no budget.
            names = re.findall(r"\w+", str(_core.solve.__doc__).partition("Options: ")[2].partition(".")[0])
            names = [option for option in names if name == "solve" or option != "budget_bytes"]
            node.args.kwonlyargs += [ast.arg(name) for name in names]
            node.args.kw_defaults += [ast.Constant(None)] * len(names)
        yield node


def parameters(node: ast.FunctionDef) -> list[str]:
    """The parameters as text: _ stands for one without a name, * marks one that is passed by name only, = one that can be
    left out."""
    listed, placed = node.args, [*node.args.posonlyargs, *node.args.args]
    optional = [*placed[len(placed) - len(listed.defaults):],
                *(p for p, default in zip(listed.kwonlyargs, listed.kw_defaults, strict=True) if default)]

    def told(parameter: ast.arg) -> str:
        nameless = parameter in listed.posonlyargs or re.fullmatch(r"arg\d+", parameter.arg)
        return ("_" if nameless else parameter.arg) + ("=" if parameter in optional else "")

    return [*(told(p) for p in placed if p.arg != "self"), *sorted(f"*{told(p)}" for p in listed.kwonlyargs)]
