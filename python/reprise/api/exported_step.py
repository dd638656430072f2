"""reprise.export: a training step as a file, to be planned and trained by C++, without Python.

The step is captured as reprise.compile captures one, with the loss inside. The memory of each tensor that it
reads tells whether it is a parameter, a buffer or a part of the batch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import RepriseError, Unsupported
from ..native import _torch
from ..trace.any_size import Dim
from ..trace.joint_graph import EAGER, JointGraph, check_engine
from ..trace.layouts import Number, itself
from ..trace.step_capture import TracedStep, capture_step, trace_for_any_size
from .compiled_model import refuse_wrappers
from .tensor_parallel import refuse_distributed

ENDING = ".program.json"


def export(model: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor], path: str | os.PathLike[str], *,
           also: Sequence[Sequence[Tensor]] = (), engine: str = EAGER) -> Path:
    """Writes one training step of `model` to `path`, and its parameters and buffers beside it.

        reprise.export(model, lambda model, x, y: F.cross_entropy(model(x), y), (images, labels), "net.program.json")

    writes net.program.json and net.parameters.pt, and returns the path of the second: a dict of
    tensors by name, for torch.load. C++ reads both, plans the step for a budget on its own machine,
    trains it, and writes such a dict again:

        model.load_state_dict(torch.load("trained.pt", weights_only=True), strict=False)

    loss: loss(model, *inputs) gives a tensor of one number.
    inputs: a batch. Its shapes, dtypes and strides become the program's, as do the model's device
        and its mode, train() or eval(); its contents do not matter.
    also: batches of other sizes, which shall be trained from the same file. It then holds the step for all sizes, in those
        dimensions in which they differ from `inputs`; C++ plans for the sizes of `inputs` first, so give the largest ones
        there. The step is traced with symbols for these sizes, and compared with a capture at each of the batches.
    engine: as for reprise.compile. The kernels of "fused" are written into the folder net.kernels; they run on
        devices like the one they were generated for.

    The model is left as it was, and nothing is trained. If something goes wrong, no file is
    written or changed.
    """
    path = Path(path)
    if not path.name.endswith(ENDING):
        raise ValueError(f"path={str(path)!r}: the name of a program file must end with {ENDING}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"reprise.export takes a torch.nn.Module, not {type(model).__name__}")
    refuse_wrappers(model)
    refuse_distributed(model, "reprise.export")
    batch = _checked(inputs)
    others = [_checked(other) for other in also]
    check_engine(engine)
    if others and engine != EAGER:
        raise ValueError(f"also: the kernels of engine={engine!r} are for one size; export one file for each")
    state = {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    step = _captured(model, loss, batch, engine)
    owners = _owners(step.joint, [*model.parameters(), *model.buffers(), *batch], len(state))
    step.measure()  # results have the layouts of the device
    if others:
        text = _text_for_any_size(model, loss, batch, others, step, list(state), path.name)
    else:
        text = _torch.format_program(step.captured.program, list(state), owners, _gradients_of(owners))
        if _torch.format_program(*_torch.parse_program(text, path.name)) != text:
            raise _read_differently(path.name)
    name = path.name.removesuffix(ENDING)
    beside, kernels = path.with_name(f"{name}.parameters.pt"), path.with_name(f"{name}.kernels")
    known = Path(_torch.kernel_folder())
    _write({**{kernels / file: partial(shutil.copyfile, known / file) for file in step.joint.kernel_files},
            path: lambda to: to.write_text(text, encoding="utf-8"), beside: lambda to: torch.save(state, to)}, kernels)
    return beside


def _checked(inputs: Sequence[Tensor]) -> list[Tensor]:
    if isinstance(inputs, Tensor) or not all(isinstance(x, Tensor) for x in inputs):
        raise TypeError("inputs: give a batch as a tuple of tensors; what is not a tensor belongs in `loss`")
    batch = list(inputs)
    if len({_key(x) for x in batch}) < len(batch):
        raise ValueError("inputs: two tensors of the batch are the same one, and would be in every batch; clone one of them")
    return batch


def _read_differently(name: str) -> RepriseError:
    return RepriseError(f"{name} would be read differently from what was written; this is a bug in Reprise")


def _captured(model: nn.Module, loss: Callable[..., Tensor], batch: list[Tensor], engine: str) -> TracedStep:
    with _plain(model):
        found = capture_step(_step_of(model, loss), batch, {}, type(model).__name__, engine=engine)
    _check_loss(found.results)
    return found


def _step_of(model: nn.Module, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def step(*args: Tensor) -> Tensor:
        return loss(model, *args)

    return step


@contextlib.contextmanager
def _plain(model: nn.Module) -> Iterator[None]:
    """A compiled model is a plain one while this is active."""
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        yield
    finally:
        model._compiled_call_impl = compiled


def _text_for_any_size(model: nn.Module, loss: Callable[..., Tensor], batch: list[Tensor], others: list[list[Tensor]],
                       step: TracedStep, names: list[str], file: str) -> str:
    """The step as a file for all sizes in which the other batches differ. `step` is the one of `batch`, measured."""
    varying = {dim for other in others for dim in _differing(batch, other)}
    if not varying:
        raise ValueError("also: these batches have the sizes of `inputs`; leave them out")
    with _plain(model):
        traced = trace_for_any_size(_step_of(model, loss), batch, {}, step.name, varying)
    here = traced.symbols_at(batch, {})
    assert here is not None  # it was traced there
    family = traced.family(_torch.CostBook(step.joint.device).layouts, here)
    _check_member(family.at(here), step, batch)
    for other in others:
        there = traced.symbols_at(other, {})
        if there is None:
            raise Unsupported(f"also: with a batch of the sizes {_shapes(other)} it is another step than with "
                              f"{_shapes(batch)}: export a file of its own for it")
        captured = _captured(model, loss, other, EAGER)
        captured.measure()
        _check_member(family.at(there), captured, other)
    ranges, conditions = traced.limits()  # before the tensors here are looked up in the trace, which would add to them
    owners = _owners(traced.joint, [*model.parameters(), *model.buffers(), *batch], len(names), traced.sizes.at(here))
    symbols = [(*traced.source_of(i), here[i], *bounds) for i, bounds in enumerate(ranges)]
    text = _torch.format_family(family, names, owners, _gradients_of(owners), symbols, conditions)
    if _torch.format_family(*_torch.parse_family(text, file)) != text:
        raise _read_differently(file)
    return text


def _check_member(member: _torch.Program, captured: TracedStep, batch: list[Tensor]) -> None:
    difference = member.difference(captured.captured.program)
    if difference is not None:
        raise Unsupported(f"also: traced for any size it is another step than captured with {_shapes(batch)}: {difference}. "
                          "Export one file for each size")


def _differing(batch: list[Tensor], other: list[Tensor]) -> Iterator[Dim]:
    if [_kind(x) for x in batch] != [_kind(x) for x in other]:
        raise ValueError("also: a batch differs from `inputs` in more than sizes: give as many tensors, with the same numbers "
                         "of dimensions, types and devices")
    for number, (one, another) in enumerate(zip(batch, other, strict=True)):
        yield from ((number, dim) for dim in range(one.dim()) if one.shape[dim] != another.shape[dim])


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dim(), tensor.dtype, tensor.device


def _shapes(batch: list[Tensor]) -> str:
    return ", ".join(str(tuple(x.shape)) for x in batch)


def _check_loss(results: list[Any]) -> None:
    if len(results) == 1 and isinstance(results[0], Tensor) and results[0].numel() == 1 and results[0].dim() == 0:
        return
    found = ", ".join(str(tuple(r.shape)) if isinstance(r, Tensor) else type(r).__name__ for r in results)
    raise Unsupported(f"loss(model, *inputs) must return one tensor of one number, such as a mean; it returns ({found})")


def _key(tensor: Tensor, number: Number = itself) -> tuple[Any, ...]:
    return (tensor.untyped_storage()._cdata, number(tensor.storage_offset()), tuple(map(number, tensor.shape)),
            tuple(map(number, tensor.stride())), tensor.dtype)


def _owners(joint: JointGraph, known: Sequence[Tensor], num_names: int, number: Number = itself) -> list[int]:
    """For each tensor that the step reads, its position in the batch, or -(1 + position among the names).
    known: the tensors that have names, and the batch. number: what sizes of the step are in this batch."""
    positions: dict[tuple[Any, ...], int] = {}
    for i, fake in enumerate(joint.fakes_of(known)):
        positions.setdefault(_key(fake), -(1 + i) if i < num_names else i - num_names)
    owners = []
    for tensor in joint.primals:
        if isinstance(tensor, torch.SymInt):
            continue  # a size of the batch
        if not isinstance(tensor, Tensor) or _key(tensor, number) not in positions:
            what = f"a tensor {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"{tensor!r}"
            raise Unsupported(f"the step reads {what} that is neither a parameter nor a buffer nor part of the batch, so a "
                              "file has no name for it: register it as a buffer of the model, or put it into the batch")
        owners.append(positions[_key(tensor, number)])
    return owners


def _gradients_of(owners: Sequence[int]) -> list[int]:
    return [-1 - owner if owner < 0 else -1 for owner in owners]


def _write(files: dict[Path, Callable[[Path], Any]], folder: Path) -> None:
    """Writes all of these files, or none. Some may lie in `folder`, which need not exist."""
    made = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in files}
    try:
        if any(path.parent == folder for path in files):
            folder.mkdir(exist_ok=True)
        for path, write in files.items():
            write(made[path])
        for path, temporary in made.items():
            temporary.replace(path)
    finally:
        for temporary in made.values():
            temporary.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # which only works if it is there and empty
