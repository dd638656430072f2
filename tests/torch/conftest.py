"""Tests of the torch layer run with one thread, so that results do not depend on the machine and tests that run beside each
other do not wait for each other's threads. A few ask for two (threads)."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from training import DEVICE

import reprise

torch.set_num_threads(1)
# Steps wait for the final plan, so that the plan a test sees is the one its steps ran with.
os.environ["REPRISE_WAITING_SECONDS"] = "1e9"


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """Hides from the garbage collector what imports and earlier modules have left, 440,000 objects. A step looks at
    all objects that the collector knows, and tests call it often: both took three tenths of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tests that need it: kernels of several threads take memory at times that depend on chance."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """As many threads as the test's parameter says."""
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, so that nothing is known of what was measured and planned before."""
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Kernels that repeat their bits, so that a step can be compared with eager's."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


@pytest.fixture
def on_device() -> Iterator[None]:
    """Tensors are made on the device that the tests run on."""
    if DEVICE.type == "cpu":
        yield
        return
    torch.set_default_device(DEVICE)
    with reprise.online("64GiB"):  # From now on blocks are split exactly, and libraries have workspaces.
        torch.ones(64, 64).mm(torch.ones(64, 64))
    yield
    torch.set_default_device(None)
