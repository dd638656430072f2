"""Times and workspaces of the calls of a program.

Measured op by op with only the operands of that op in memory; calls that are alike are measured
once, in this run and (by a file in the cache folder) in later ones on the same machine with the
same versions and flags.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import platform
import time
from typing import Any

import torch

from . import _core, cache
from .captured import Captured
from .errors import Unsupported
from .trace.layouts import Layout, Layouts
from .native import _torch
from .progress import Progress

log = logging.getLogger("reprise")

ENOUGH_NS = 5_000_000  # per call


def environment(device: torch.device) -> dict[str, object]:
    """All that time and workspace of a kernel depend on, beside the call itself."""
    facts: dict[str, object] = {
        "reprise": _core.__version__,
        "format": 8,  # of the file
        "torch": torch.__version__,
        "device": device.type,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        facts |= {
            "name": torch.cuda.get_device_name(device),
            "cudnn": torch.backends.cudnn.version(),
            "benchmark": torch.backends.cudnn.benchmark,
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
            "tf32": [_precision(torch.backends.cuda.matmul), _precision(getattr(
                torch.backends.cudnn, "conv", torch.backends.cudnn))],
        }
    else:
        facts |= {
            "name": platform.processor() or platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "mkldnn": torch.backends.mkldnn.enabled,
        }
    return facts


def _precision(library: Any) -> object:
    """By torch's newer flag where there is one: reading the older beside it may be an error."""
    return library.fp32_precision if hasattr(library, "fp32_precision") else library.allow_tf32


def cache_name(device: torch.device) -> str:
    text = json.dumps(environment(device), sort_keys=True)
    return f"profile-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def known_layouts(device: torch.device) -> Layouts:
    return _stored(device)["layouts"]


def known_calls(device: torch.device) -> dict[str, list[Any]]:
    """Signature -> time, workspace and layouts of every call measured so far."""
    return _stored(device)["calls"]


def known_kept_bytes(device: torch.device) -> int:
    """What libraries keep of the device after the first calls of a thread (cuBLAS: its workspace)."""
    return max(_stored(device)["kept_bytes"], _kept.get(str(device), 0))


def _stored(device: torch.device) -> dict[str, Any]:
    stored = cache.read(cache_name(device))
    if stored is not None and not _is_profile(stored):
        cache.refuse(cache_name(device), "it is no profile")
    elif stored is not None:
        return stored
    return {"environment": environment(device), "calls": {}, "layouts": {}, "kept_bytes": 0}


def _is_profile(stored: Any) -> bool:
    if not isinstance(stored, dict) or not all(isinstance(stored.get(k), dict) for k in ("calls", "layouts")):
        return False
    if not isinstance(stored.get("kept_bytes"), int):
        return False
    return (all(isinstance(call, list) and len(call) == 3 for call in stored["calls"].values())
            and all(isinstance(layouts, list) for layouts in stored["layouts"].values()))


def check_layouts(wrong: Layouts, known: Layouts) -> None:
    """Where the device and a capture that knows of it disagree once more, there is no end to it."""
    again = [key for key, layouts in wrong.items() if known.get(key) == layouts]
    if again:
        raise Unsupported(
            f"cannot tell how the results of this call lie in memory: {again[0]}. Move it out of the model")


def measure(captured: Captured, device: torch.device) -> tuple[float, Layouts]:
    """Gives every call its time and workspace. Returns the seconds it took, and the layouts of
    results that are not as the program has them: it has to be captured again then."""
    begin = time.monotonic()
    program = captured.program
    stored = _stored(device)
    calls: dict[str, list[Any]] = stored["calls"]
    ops = [(op, program.signature(op)) for op in range(program.num_ops) if program.is_call(op)]
    unknown = {signature for _, signature in ops if signature not in calls}
    wrong: Layouts = {}
    changed = False
    unsure: set[int] = set()  # values made from results that are not as expected
    with Progress("profiling call") as progress:
        for op, signature in ops:
            if not unsure.isdisjoint(program.reads(op)):
                unsure.update(program.makes(op))
                continue
            is_first = _is_first(signature, device)
            if is_first or signature not in calls:
                progress(len(unknown) - len(unknown - calls.keys()), len(unknown))
                before = _torch.allocated_bytes(device)
                found = _measured(program, op)
                if is_first:
                    _kept[str(device)] = _kept.get(str(device), 0) + _torch.allocated_bytes(device) - before
                # A time known from a file stays: with another one, plans in the cache would not be found.
                if signature not in calls or calls[signature][1:] != found[1:]:
                    calls[signature] = found
                    changed = True
            time_ns, workspace_bytes, layouts = calls[signature]
            program.set_cost(op, time_ns, workspace_bytes)
            if op in captured.keys and not program.lies_as(op, [_with_dtype(layout) for layout in layouts]):
                key = captured.keys[op]
                wrong[key] = _with_others(layouts, wrong.get(key) or stored["layouts"].get(key) or [])
                unsure.update(program.makes(op))
    kept = _kept.get(str(device), 0)
    if changed or wrong or kept > stored["kept_bytes"]:
        stored["layouts"].update(wrong)
        stored["kept_bytes"] = max(kept, stored["kept_bytes"])
        cache.write(cache_name(device), stored)
    seconds = time.monotonic() - begin
    log.info("profiled %d calls, %d of them new, in %.2f s", len(ops), len(unknown & calls.keys()), seconds)
    return seconds, wrong


_first: set[tuple[str, str]] = set()
_kept: dict[str, int] = {}  # by device, after first calls in this process


def _is_first(signature: str, device: torch.device) -> bool:
    """Whether a call known from a file has to run once all the same: in every process cuDNN chooses
    its algorithm, and cuBLAS allocates what it keeps, at their first run, which must not be in the
    middle of a step."""
    name = signature.partition(";")[0]
    if device.type != "cuda" or not any(part in name for part in ("convolution", "mm", "cudnn", "attention")):
        return False
    chooses = torch.backends.cudnn.benchmark and "convolution" in name
    key = (str(device), signature if chooses else name)
    is_first = key not in _first
    _first.add(key)
    return is_first


def _measured(program: Any, op: int) -> list[Any]:
    """For a JSON file."""
    try:
        time_ns, workspace_bytes, layouts = program.measure(op, ENOUGH_NS)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    return [time_ns, workspace_bytes, [
        layout and [str(layout[0]).removeprefix("torch."), *layout[1:]] for layout in layouts]]


def _with_others(layouts: list[Layout | None], others: list[Layout | None]) -> list[Layout | None]:
    """Results that this part of a call does not give are another part's."""
    return [layout or other for layout, other in itertools.zip_longest(layouts, others)]


def _with_dtype(layout: Layout | None) -> tuple | None:
    return layout and (getattr(torch, layout[0]), *layout[1:])


def estimate(captured: Captured) -> None:
    """Gives every call its time by the roofline, and no workspace."""
    for op, time_ns in captured.estimates.items():
        captured.program.set_cost(op, time_ns, 0)
