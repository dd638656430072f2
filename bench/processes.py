"""What benchmarks of training in several processes share: their options, how processes find each other, and clocks."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

_RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Process:
    rank: int
    device: torch.device
    known: dict[str, Any]  # what a file of results says of the run


def parser_of(description: str, name: str) -> argparse.ArgumentParser:
    """name: of the file of results."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS / f"{name}.json")
    return parser


def in_processes(run: Callable[[Process, argparse.Namespace], None], options: argparse.Namespace) -> None:
    """One process per GPU talks through NCCL, two on one GPU or on the CPU through gloo."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_run, (run, options, folder), nprocs=options.ranks)


def started(run: Callable[[Process, argparse.Namespace], None], options: argparse.Namespace,
            folder: str) -> torch.multiprocessing.ProcessContext:
    """The same processes, while they run. They find each other in an empty folder, and begin soon: what they import is there."""
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "reprise.api.compiled_model"])
    return torch.multiprocessing.start_processes(_run, (run, options, folder), nprocs=options.ranks, join=False,
                                                 start_method="forkserver")


def _run(rank: int, run: Callable[[Process, argparse.Namespace], None], options: argparse.Namespace, folder: str) -> None:
    on_gpu = options.device == "cuda"
    device = torch.device(options.device, 0) if on_gpu else torch.device("cpu")
    torch.set_num_threads(8 if on_gpu else 1)
    backend = "nccl" if on_gpu and options.ranks == 1 else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=options.ranks, store=dist.FileStore(f"{folder}/store", options.ranks))
    known = {"command": " ".join(["python", *sys.argv]), "machine": platform.machine(), "torch": torch.__version__,
             "backend": backend, "ranks": options.ranks, "gpu": torch.cuda.get_device_name(device) if on_gpu else None}
    run(Process(rank, device, known), options)
    dist.destroy_process_group()


def seconds_of(step: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    begin = time.perf_counter()
    step()
    _synchronize(device)
    return time.perf_counter() - begin


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
