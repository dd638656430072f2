"""Generated kernels as files that the runtime loads."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..native import _torch
from .inductor import Launch, Lowered, compile_cpp, compile_triton, cpp_environment, tune

_INCLUDE = "#include <torch/csrc/inductor/cpp_prefix.h>"


@dataclass(frozen=True)
class KernelFile:
    """Where a kernel is, and how it is called."""

    file: str
    function: str
    grid: tuple[int, ...]  # empty on the CPU
    order: tuple[int | None, ...]  # for each parameter: which argument of the launch; None: null


def write_kernels(lowered: Lowered, device: torch.device) -> dict[str, KernelFile]:
    """Compiles the kernels of one side into files of the cache."""
    launches = {item.kernel: item for item in lowered.items if isinstance(item, Launch)}
    if device.type == "cpu":
        return _write_library(lowered, launches) if launches else {}
    compiled = compile_triton({name: lowered.kernels[name] for name in launches})
    files = {}
    for name, launch in launches.items():
        binary = tune(compiled[name], launch, device)
        file = f"{hashlib.sha256(binary.image).hexdigest()}.cubin"
        _write(file, binary.image)
        files[name] = KernelFile(file, binary.function, binary.grid, binary.order)
    return files


def _write_library(lowered: Lowered, launches: dict[str, Launch]) -> dict[str, KernelFile]:
    """One shared library with all kernels. In it the function of a kernel takes an array with the addresses of all
    arguments."""
    source = "\n".join([_INCLUDE, *(_renamed(name, lowered.kernels[name], launch.types) for name, launch in launches.items())])
    key = hashlib.sha256("\n".join([source, torch.__version__, cpp_environment()]).encode()).hexdigest()
    file = f"{key}.so"
    if not (Path(_torch.kernel_folder()) / file).exists():
        _write(file, Path(compile_cpp(source)).read_bytes())
    return {name: KernelFile(file, name, (), tuple(range(len(launch.types)))) for name, launch in launches.items()}


def _renamed(name: str, source: str, types: Sequence[str]) -> str:
    arguments = ", ".join(f"*static_cast<{_value(kind)}*>(arguments[{i}])" for i, kind in enumerate(types))
    body = source.replace(_INCLUDE, "")
    return (f"#define kernel inner_{name}\n{body}\n#undef kernel\n"
            f'extern "C" void {name}(void** arguments) {{ inner_{name}({arguments}); }}\n')


def _value(kind: str) -> str:
    """The type of a variable that holds such an argument."""
    return kind if kind.endswith("*") else kind.removeprefix("const ")


def _write(file: str, image: bytes) -> None:
    """Writes a file so that it is there completely or not at all."""
    path = Path(_torch.kernel_folder()) / file
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(image)
    Path(temporary).replace(path)
