"""A process for each measurement: the side that starts them, so many at a time, and the side of the process itself.

Imports, captures and planning need no device. Where several run at a time, what is measured is measured under a lock
(device_alone), with one process alone on the device; waiting for it counts in no limit and in no time. Of
torch.compile the first step, which compiles, runs beside a measurement: medians do not feel it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from common import ROOT, STEPS, alone, facts

from reprise.measuring import measured_within

Row = dict[str, Any]
# What reprise.compile asks of the allocator anyway; here of all, so that they are counted alike.
ALLOCATOR = "expandable_segments:True"


def command_line(doc: str, folder: str, cases: Iterable[str], seconds: float, *, samples: int | None = None,
                 one: Iterable[str] = STEPS) -> argparse.ArgumentParser:
    """What every comparison is asked with. `--one` is for the processes that it starts."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--cases", default=",".join(cases))
    parser.add_argument("--seconds", type=float, default=seconds, help="for each process")
    if samples is not None:
        parser.add_argument("--samples", type=int, default=samples)
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at a time, of which one alone is measured")
    parser.add_argument("--lock", type=Path, help="a file of your choice, the same for commands that run at the same time")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument("--cpu", action="store_true", help="tiny networks on the CPU, to try the command")
    parser.add_argument("--one", choices=one, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / folder)
    return parser


class Limit:
    """Stops after some seconds, without those between pause() and go_on()."""

    def __init__(self, seconds: float, stop: Callable[[], None]) -> None:
        self.left, self.stop = seconds, stop
        self.go_on()

    def go_on(self) -> None:
        self.begin = time.monotonic()
        self.timer = threading.Timer(self.left, self.stop)
        self.timer.start()

    def pause(self) -> None:
        self.timer.cancel()
        self.left -= time.monotonic() - self.begin


class Children:
    """Processes of a script, `jobs` at a time. Several share a lock. They end when this one is
    interrupted or terminated."""

    def __init__(self, script: str, jobs: int = 1, lock: Path | None = None) -> None:
        self.script, self.jobs, self.lock = script, jobs, lock
        self._places = threading.Semaphore(jobs)
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def __enter__(self) -> Children:
        self._folder = tempfile.TemporaryDirectory()
        lock = self.lock or (Path(self._folder.name) / "lock" if self.jobs > 1 else None)
        self._lock = ["--lock", str(lock)] if lock else []
        # They have sessions of their own: who stops this process does not reach them.
        self._handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        self._folder.cleanup()

    def each(self, work: Callable[[Any], int], items: Iterable[Any]) -> int:
        """Works on several items at a time; `work` returns how many of its children failed."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            try:
                return sum(pool.map(work, items))
            except BaseException:
                self._end()
                raise

    def run(self, arguments: list[str], seconds: float, take: Callable[[Row], None]) -> str | None:
        """Takes the rows that the script prints as they come. Returns why it failed, if it did."""
        with self._places, tempfile.TemporaryFile("w+") as errors:
            with self._guard:
                self._go_on()
                process = self._start([*arguments, *self._lock], errors)
            try:
                late = _listen(process, seconds, take)
            finally:
                self._running.discard(process)
            self._go_on()
            errors.seek(0)
            said = errors.read()[-3000:]
        if late:
            return f"stopped after {seconds:g} s"
        return None if process.returncode == 0 else said or f"ended with {process.returncode}"

    def _start(self, arguments: list[str], errors: Any) -> subprocess.Popen[str]:
        allocator = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ALLOCATOR
        environment = os.environ | dict.fromkeys(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), allocator)  # by any version
        process = subprocess.Popen([sys.executable, self.script, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env=environment, start_new_session=True)
        self._running.add(process)
        return process

    def _go_on(self) -> None:
        """What was interrupted has not failed: the next run begins it again."""
        if self._ended:
            raise concurrent.futures.CancelledError

    def _end(self) -> None:
        with self._guard:
            self._ended = True
            for process in list(self._running):
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers it has started


def _listen(process: subprocess.Popen[str], seconds: float, take: Callable[[Row], None]) -> bool:
    """Until the process ends. Returns whether it had to be stopped."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process)

    limit = Limit(seconds, stop)
    try:
        for line in process.stdout:
            if line.startswith('{"case"'):
                take(json.loads(line))
            elif line.startswith('{"waiting"'):
                (limit.pause if json.loads(line)["waiting"] else limit.go_on)()
        process.wait()
    finally:
        limit.pause()
        if process.poll() is None:
            stop()
    return late.is_set()


# -- In a child.

_waited: list[float] = []
_holds = False


def clock() -> float:
    """Seconds, without those that device_alone has waited."""
    return time.perf_counter() - sum(_waited)


@contextlib.contextmanager
def device_alone(lock: Path | None) -> Iterator[None]:
    """For all that is measured. Gives back what the allocator holds for later: others need it meanwhile."""
    global _holds  # noqa: PLW0603  of this process, as the device is
    if lock is None or _holds:
        yield
        return
    print(json.dumps({"waiting": True}), flush=True)
    begin = time.perf_counter()
    with alone(lock):
        _waited.append(time.perf_counter() - begin)
        _holds = True
        print(json.dumps({"waiting": False}), flush=True)
        try:
            yield
        finally:
            _release_memory()
            _holds = False


def _release_memory() -> None:
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


@contextlib.contextmanager
def operators_alone(lock: Path | None) -> Iterator[None]:
    """What Reprise measures of operators it measures alone; the rest goes on beside others."""
    with measured_within(lambda: device_alone(lock)):
        yield


def compile_beside(training: Any, lock: Path | None, call: Callable[..., Any] | None = None) -> None:
    """The first step of a compiled model, nearly all of which is compilation: beside others, which measure meanwhile.
    Reprise's runs alone from the profile on: without a plan it takes all the memory that eager does."""
    with contextlib.ExitStack() as held:

        def hold() -> contextlib.AbstractContextManager[None]:
            held.enter_context(device_alone(lock))
            return contextlib.nullcontext()

        with measured_within(hold):
            training.step(call)
        training.model.zero_grad(set_to_none=True)
    _release_memory()


def give(row: Row, command: str) -> None:
    """Prints a row of a child for its parent."""
    print(json.dumps(row | {"facts": facts(command) | {"allocator": os.environ.get("PYTORCH_ALLOC_CONF", "")}}), flush=True)
