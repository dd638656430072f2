"""Runs a command on a terminal of its own, and writes what somebody who watches it sees, line by line.

    scripts/python.sh scripts/documents/terminal.py [-o docs/pictures/demo.txt] make demo

A line that was overwritten, as progress is, stands there once for each of its kinds, marked by "~" and with its numbers as they
were last; one that vanished without a successor is marked in the same way. The other lines are as they stay.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import sys
from collections.abc import Iterable
from pathlib import Path

PASSING = "~ "


def seen(chunks: Iterable[str]) -> list[str]:
    """The lines that a terminal shows of this output, with the passing ones before those that follow them."""
    lines: list[str] = []
    passing: dict[str, str] = {}  # by what is left without its numbers
    line = ""
    for chunk in chunks:
        for part in re.split(r"(\r\n|\n|\r)", chunk):
            if part == "\r":
                if line:
                    passing[re.sub(r"\d+", "", line)] = PASSING + line
                line = ""
            elif part in ("\n", "\r\n"):
                passing.pop(re.sub(r"\d+", "", line), None)
                lines += [*passing.values(), line.rstrip()]
                passing, line = {}, ""
            else:
                line += re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", part)
    return [*lines, *passing.values(), *([line] if line else [])]


def output_of(command: list[str]) -> tuple[int, str]:
    """The exit status, and everything that was written to the terminal, which the caller sees, too."""
    written: list[bytes] = []

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 1 << 16)
        written.append(data)
        return data

    status = pty.spawn(command, read)
    return os.waitstatus_to_exitcode(status), b"".join(written).decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/pictures/demo.txt"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("give a command, such as: make demo")
    status, text = output_of(options.command)
    here = f"{Path.cwd()}{os.sep}"
    lines = [f"$ {' '.join(options.command)}", *(line.replace(here, "") for line in seen([text]))]
    options.output.write_text("\n".join(lines) + "\n")
    print(f"\n{options.output}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
