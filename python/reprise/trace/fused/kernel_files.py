"""Generated kernels as files that the runtime loads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from ...errors import RepriseError
from ...native import _torch
from .inductor import compile_cpp, compile_triton, cpp_environment, tune
from .lowered import CompiledStep, KernelFile, Launch, Lowered, LoweredStep

_INCLUDE = "#include <torch/csrc/inductor/cpp_prefix.h>"


def compiled(step: LoweredStep, device: torch.device) -> CompiledStep:
    """Compiles the kernels of a step, and tunes them where the device has a choice."""
    return CompiledStep(step, _write_kernels(step.forward, device, {}), _write_kernels(step.backward, device, step.samples))


def _write_kernels(lowered: Lowered, device: torch.device, samples: dict[str, int]) -> dict[str, KernelFile]:
    """Compiles the kernels of one side into files of the cache."""
    launches = {item.kernel: item for item in lowered.items if isinstance(item, Launch)}
    if device.type == "cpu":
        return _write_library(lowered, launches) if launches else {}
    made = compile_triton({name: lowered.kernels[name] for name in launches})
    files = {}
    for name, launch in launches.items():
        binary = tune(made[name], launch, device, samples)
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
    if not _exists(file):
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
    if not _exists(file) and not _torch.write_kernel(file, image):
        raise RepriseError(f"a generated kernel cannot be written to {_torch.kernel_folder()}, from where it would be loaded. "
                           "Make room there, or name another folder in REPRISE_CACHE_DIR")


def _exists(file: str) -> bool:
    return (Path(_torch.kernel_folder()) / file).exists()
