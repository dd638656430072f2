"""Tests the wheel in an environment of its own, which has torch and nothing of the checkout."""

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core", reason="the wheel needs the backend of pyproject.toml")
ROOT = Path(__file__).resolve().parents[2]
WITHOUT_CHECKOUT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
TRAIN = """
import reprise, torch

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [part for _ in range(12) for part in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
model, batch = torch.nn.Sequential(*layers), torch.randn(4096, 64)


def gradients():
    model.zero_grad()
    model(batch).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


expected = gradients()
reprise.compile(model)
gradients()
budget = int(0.7 * model.plan.peak_bytes)
model.plan.set_budget(budget)
assert all(map(torch.equal, gradients(), expected))
assert model.plan.measured_peak_bytes <= budget and model.plan.recompute_ns > 0
assert "reprise" in torch._dynamo.list_backends()
print(reprise.__file__)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and with the torch of the tests' own environment."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts" / "wheel.sh", folder], check=True)
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    site = folder / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "torch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel],
                   env=WITHOUT_CHECKOUT, check=True)
    return folder / "env"


def run(environment: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([environment / "bin" / "python", "-c", program], cwd=environment, capture_output=True, text=True,
                          check=False, env={**WITHOUT_CHECKOUT, "REPRISE_CACHE_DIR": str(environment / "cache")})


def test_it_trains_inside_a_budget_away_from_the_checkout(environment: Path) -> None:
    done = run(environment, TRAIN)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(environment)


def test_beside_another_torch_it_says_what_to_do(environment: Path) -> None:
    (built_for,) = environment.glob("lib/python*/site-packages/reprise/_built_for.py")
    before = built_for.read_text()
    built_for.write_text("__version__ = '1.0.0'\n")
    try:
        done = run(environment, "import reprise.native")
    finally:
        built_for.write_text(before)
    assert "reprise was built for torch 1.0.0" in done.stderr
    assert "pip install" in done.stderr
