"""Runs each measurement in a process of its own. This file has the code that starts the processes, several at a time, and the
code that runs inside them.

Imports, captures and planning do not need the device. If several processes run at a time, each measures under a lock
(device_alone), so that it is alone on the device; waiting for the lock counts towards no limit and in no measured time. The
first step of torch.compile, which compiles, runs beside the measurements of others: it does not change their medians.
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
# reprise.compile asks the allocator for this anyway. Here all processes do, so that all peaks are counted in the same way.
ALLOCATOR = "expandable_segments:True"


def command_line(doc: str, folder: str, cases: Iterable[str], seconds: float, *, samples: int | None = None,
                 one: Iterable[str] = STEPS) -> argparse.ArgumentParser:
    """The options that all comparisons have. `--one` is for the processes that a comparison starts."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--cases", default=",".join(cases))
    parser.add_argument("--seconds", type=float, default=seconds, help="the time limit for each process")
    if samples is not None:
        parser.add_argument("--samples", type=int, default=samples)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run at a time; only one of them measures")
    parser.add_argument("--lock", type=Path, help="a file of your choice, the same for commands that run at the same time")
    parser.add_argument("--again", action="store_true", help="also measure what is in the output folder already")
    parser.add_argument("--cpu", action="store_true", help="tiny networks on the CPU, to try the command")
    parser.add_argument("--one", choices=one, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / folder)
    return parser


class Limit:
    """Calls `stop` after some seconds; those between pause() and go_on() do not count."""

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
    """Processes that run a script, `jobs` at a time. If there are several, they share a lock. They end when this process is
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
        # The processes have sessions of their own, so a signal to this process does not reach them.
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
        """Runs the script and calls `take` with each row as it is printed. Returns why the script failed, or None."""
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
        # Old versions of torch read one of these names, new versions read the other.
        environment = os.environ | dict.fromkeys(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), allocator)
        process = subprocess.Popen([sys.executable, self.script, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env=environment, start_new_session=True)
        self._running.add(process)
        return process

    def _go_on(self) -> None:
        """Raises CancelledError if this process was interrupted, so that what was running does not count as failed: the next
        run begins it again."""
        if self._ended:
            raise concurrent.futures.CancelledError

    def _end(self) -> None:
        with self._guard:
            self._ended = True
            for process in list(self._running):
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # This also ends the compilers that it has started.


def _listen(process: subprocess.Popen[str], seconds: float, take: Callable[[Row], None]) -> bool:
    """Reads what the process prints until it ends. Returns whether it had to be stopped."""
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


# -- The code that runs inside the processes.

_waited: list[float] = []
_holds = False


def clock() -> float:
    """Seconds on a clock that stands still while device_alone waits."""
    return time.perf_counter() - sum(_waited)


@contextlib.contextmanager
def device_alone(lock: Path | None) -> Iterator[None]:
    """Holds the lock around a measurement. Afterwards the allocator gives back the memory it does not use, because other
    processes need it."""
    global _holds  # noqa: PLW0603  A process has one lock, for the one device it uses.
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
    """Reprise holds the lock while it measures operators; the rest of its work goes on beside other processes."""
    with measured_within(lambda: device_alone(lock)):
        yield


def compile_beside(training: Any, lock: Path | None, call: Callable[..., Any] | None = None) -> None:
    """Runs the first step of a compiled model, most of which is compilation, while other processes measure. The first step of
    Reprise holds the lock as soon as it measures operators, because without a plan it takes as much memory as eager."""
    with contextlib.ExitStack() as held:

        def hold() -> contextlib.AbstractContextManager[None]:
            held.enter_context(device_alone(lock))
            return contextlib.nullcontext()

        with measured_within(hold):
            training.step(call)
        training.model.zero_grad(set_to_none=True)
    _release_memory()


def give(row: Row, command: str) -> None:
    """Prints a row, with the facts of this run, for the process that started this one."""
    print(json.dumps(row | {"facts": facts(command) | {"allocator": os.environ.get("PYTORCH_ALLOC_CONF", "")}}), flush=True)
