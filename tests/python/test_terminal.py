"""scripts/documents/terminal.py: what is kept of the output of a command."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/documents/terminal.py"
SEEN = runpy.run_path(str(SCRIPT))["seen"]


def test_lines_that_pass_are_marked_and_stand_there_once() -> None:
    shown = "begin\r\n\rreprise: profiling call 1/20\x1b[K\rreprise: profiling call 20/20\x1b[K\r\x1b[K" \
            "\rreprise: planning 3 %\x1b[K\r\x1b[Kstep 1\r\nend"
    assert SEEN([shown]) == ["begin", "~ reprise: profiling call 20/20", "~ reprise: planning 3 %", "step 1", "end"]


def test_a_line_that_is_written_again_as_it_was_is_not_marked() -> None:
    assert SEEN(["[1/2] a\r[2/2] a\r\ndone\n"]) == ["[2/2] a", "done"]


def test_a_command_is_recorded_and_its_status_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = f"import sys; print(sys.stdout.isatty(), '{tmp_path}/out.html'); sys.exit(3)"
    monkeypatch.setattr(sys, "argv", ["terminal.py", "-o", "seen.txt", sys.executable, "-c", program])
    with pytest.raises(SystemExit, match="3"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    first, line = (tmp_path / "seen.txt").read_text().splitlines()
    assert first.startswith("$ ") and line == "True out.html"
