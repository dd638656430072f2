"""What AOTAutograd has found out about a step's inputs and outputs, as JSON and back.

torch.compile's wrapper around a step follows from these data: which inputs are written to, which outputs are views and of
what, which gradients there are. Reading them makes dataclasses and enumerations of AOTAutograd and views, and nothing else,
whatever a file says.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
from typing import Any

import torch
from torch.fx import GraphModule

_SCHEMAS = "torch._functorch._aot_autograd."
_TYPES = {"torch.Tensor": torch.Tensor, "int": int, "float": float, "bool": bool, "NoneType": type(None)}
_LEFT_OUT = {"tangent_source_stack_traces": None, "compile_id_str": None}  # they only explain errors, and name lines of code
_VIEWS: Any = getattr(torch._C, "_functionalization", None)


class NoText(Exception):
    """Something cannot be written or read."""


def to_json(value: Any) -> Any:
    """Raises NoText if the value has something that has no text."""
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, list):
        return [to_json(item) for item in value]
    for name, kind in _COLLECTIONS.items():
        if type(value) is kind:
            return {name: _items(value)}
    if type(value) is dict:
        return {"dict": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if isinstance(value, type):
        return {"type": _name_of(value)}
    if isinstance(value, enum.Enum):
        return {"choice": [_name_of(type(value)), value.name]}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if _name_of(type(value)).endswith("functional_utils.ViewMetaSequence"):
        return {"views": [[type(view).__name__, [_view_argument(a) for a in view.as_tuple()]] for view in value.sequence]}
    if dataclasses.is_dataclass(value) and _name_of(type(value)).startswith(_SCHEMAS):
        fields = {name: to_json(_LEFT_OUT.get(name, item)) for name, item in vars(value).items()}
        return {"data": _name_of(type(value)), "fields": fields}
    raise NoText(f"a {type(value).__name__} cannot be written")


def _items(values: Any) -> list[Any]:
    return [to_json(item) for item in (sorted(values) if isinstance(values, set) else values)]


def from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return [from_json(item) for item in value] if isinstance(value, list) else value
    match value:
        case {"data": str(name), "fields": dict(fields)}:
            kind: Any = _of_torch(name)
            if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
                raise NoText(f"{name} is not a dataclass")
            made = object.__new__(kind)
            for field, item in fields.items():
                object.__setattr__(made, field, from_json(item))
            return made
        case {"choice": [str(name), str(choice)]}:
            kind = _of_torch(name)
            if not issubclass(kind, enum.Enum):
                raise NoText(f"{name} has no choices")
            return kind[choice]
        case {"dict": list(items)}:
            return {from_json(key): from_json(item) for key, item in items}
        case {"type": str(name)}:
            return _TYPES[name] if name in _TYPES else _of_torch(name)
        case {"memory_format": str(name)} if isinstance(getattr(torch, name, None), torch.memory_format):
            return getattr(torch, name)
        case {"views": list(views)}:
            return _views(views)
    for name, collection in _COLLECTIONS.items():
        if list(value) == [name]:
            return collection(from_json(item) for item in value[name])
    raise NoText(f"{list(value)} is not known")


_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "size": torch.Size}


def _name_of(kind: type) -> str:
    known = next((name for name, known in _TYPES.items() if known is kind), None)
    return known or f"{kind.__module__}.{kind.__qualname__}"


def _of_torch(name: str) -> Any:
    module, _, kind = name.rpartition(".")
    if not module.startswith(_SCHEMAS) and name != "torch._subclasses.functional_tensor.FunctionalTensor":
        raise NoText(f"{name} is not of AOTAutograd")
    found = getattr(importlib.import_module(module), kind, None)
    if not isinstance(found, type) or _name_of(found) != name:
        raise NoText(f"there is no {name}")
    return found


def _view_argument(argument: Any) -> Any:
    if type(argument).__name__ == "InverseReturnMode":
        return {"inverse": argument.name}
    if isinstance(argument, (list, tuple)):
        return [_view_argument(item) for item in argument]
    if argument is None or type(argument) in (bool, int):
        return argument
    raise NoText(f"a {type(argument).__name__} of a view cannot be written")


def _views(views: list[Any]) -> Any:
    from torch._functorch._aot_autograd.functional_utils import ViewMetaSequence

    def argument(written: Any) -> Any:
        return getattr(_VIEWS.InverseReturnMode, written["inverse"]) if isinstance(written, dict) else written

    made: Any = object.__new__(ViewMetaSequence)
    made.sequence = [_view_kind(name)(tuple(map(argument, arguments))) for name, arguments in views]
    made.metadata = None  # which only compares it with others
    return made


def _view_kind(name: str) -> Any:
    if not name.endswith("_ViewMeta") or not isinstance(kind := getattr(_VIEWS, name, None), type):
        raise NoText(f"{name} is not a view")
    return kind


def inputs_without_gradients(backward: GraphModule, metadata: Any) -> list[int]:
    """The inputs that torch.compile detaches."""
    from torch._functorch._aot_autograd import graph_compile

    theirs = getattr(graph_compile, "_compute_indices_of_inps_to_detach", None)
    return without_gradients(backward, metadata) if theirs is None else theirs(backward, None, metadata, metadata)


def without_gradients(backward: GraphModule, metadata: Any) -> list[int]:
    """The same for torch before 2.13, which has no function for it: inputs that were computed, and for which backward gives no
    gradient. One that gets other memory in the graph has to stay what it is."""
    from torch._functorch._aot_autograd.schemas import MutationType

    gradients: Any = next(reversed(backward.graph.find_nodes(op="output"))).args[0]
    if len(gradients) != len(metadata.input_info):
        raise NoText("backward gives more than the gradients of the inputs")
    return [i for i, (gradient, known) in enumerate(zip(gradients, metadata.input_info, strict=True))
            if gradient is None and known.requires_grad and not known.is_leaf
            and not (known.mutation_type == MutationType.MUTATED_IN_GRAPH and known.mutates_storage_metadata)]
