"""reprise.export: a training step as a file, to be planned and trained by C++, without Python.

The step is captured as reprise.compile captures one, with the loss inside. The memory of each tensor that it
reads tells whether it is a parameter, a buffer or a part of the batch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import RepriseError, Unsupported
from ..native import _torch
from ..trace.joint_graph import EAGER, check_engine
from ..trace.step_capture import CapturedStep, capture_step
from .compiled_model import refuse_wrappers
from .tensor_parallel import refuse_distributed

ENDING = ".program.json"


def export(model: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor],
           path: str | os.PathLike[str], *, engine: str = EAGER) -> Path:
    """Writes one training step of `model` to `path`, and its parameters and buffers beside it.

        reprise.export(model, lambda model, x, y: F.cross_entropy(model(x), y), (images, labels), "net.program.json")

    writes net.program.json and net.parameters.pt, and returns the path of the second: a dict of
    tensors by name, for torch.load. C++ reads both, plans the step for a budget on its own machine,
    trains it, and writes such a dict again:

        model.load_state_dict(torch.load("trained.pt", weights_only=True), strict=False)

    loss: loss(model, *inputs) gives a tensor of one number.
    inputs: a batch. Its shapes, dtypes and strides become the program's, as do the model's device
        and its mode, train() or eval(); its contents do not matter.
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
    state = {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    check_engine(engine)
    step = _captured(model, loss, batch, engine)
    owners = _owners(step, len(state), [*model.parameters(), *model.buffers(), *batch])
    step.measure()  # results have the layouts of the device
    gradients = [-1 - owner if owner < 0 else -1 for owner in owners]
    text = _torch.format_program(step.captured.program, list(state), owners, gradients)
    if _torch.format_program(*_torch.parse_program(text, path.name)) != text:
        raise RepriseError(f"{path.name} would be read differently from what was written; this is a bug in Reprise")
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


def _captured(model: nn.Module, loss: Callable[..., Tensor], batch: list[Tensor], engine: str) -> CapturedStep:
    def step(*inputs: Tensor) -> Tensor:
        return loss(model, *inputs)

    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        found = capture_step(step, batch, {}, type(model).__name__, engine=engine)
    finally:
        model._compiled_call_impl = compiled
    _check_loss(found.results)
    return found


def _check_loss(results: list[Any]) -> None:
    if len(results) == 1 and isinstance(results[0], Tensor) and results[0].numel() == 1 and results[0].dim() == 0:
        return
    found = ", ".join(str(tuple(r.shape)) if isinstance(r, Tensor) else type(r).__name__ for r in results)
    raise Unsupported(f"loss(model, *inputs) must return one tensor of one number, such as a mean; it returns ({found})")


def _key(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
            tensor.dtype)


def _owners(step: CapturedStep, num_names: int, known: Sequence[Tensor]) -> list[int]:
    """For each tensor that the step reads, its position in the batch, or -(1 + position among the names)."""
    positions: dict[tuple[Any, ...], int] = {}
    for i, fake in enumerate(step.fakes_of(known)):
        positions.setdefault(_key(fake), -(1 + i) if i < num_names else i - num_names)
    owners = []
    for tensor in step.joint.primals:
        if not isinstance(tensor, Tensor) or _key(tensor) not in positions:
            what = f"a tensor {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"{tensor!r}"
            raise Unsupported(f"the step reads {what} that is neither a parameter nor a buffer nor part of the batch, so a "
                              "file has no name for it: register it as a buffer of the model, or put it into the batch")
        owners.append(positions[_key(tensor)])
    return owners


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
