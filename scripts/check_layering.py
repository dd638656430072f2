"""Fails when a file includes, or calls, what its layer may not know.

Layers of the core, lowest first; each may include itself and those before it. The core
knows the C++ standard library alone (and io a JSON library), and is pure: below io/ nothing
touches streams, files, clocks, random devices or the environment.
"""

import re
import sys
from pathlib import Path

LAYERS = ["base", "graph", "plan", "simulate", "solve", "io", "report", "umbrella"]
# Public headers whose name is not their layer.
HEADER_LAYER = {"ids": "base", "error": "base", "validate": "plan", "reprise": "umbrella"}
# Standard headers that only io and above may use.
IMPURE = {"iostream", "istream", "ostream", "fstream", "filesystem", "chrono", "random", "cstdio",
          "thread", "ctime"}
# Calls that need no telling header.
IMPURE_CALLS = re.compile(r"(?<![\w.>])(?:std::)?(getenv|system|abort|exit|printf|rand)\s*\(")
# What a folder may include from outside the standard library; public headers have nothing.
OUTSIDE = {"src/io": ("nlohmann/",), "tools": ("CLI/", "nlohmann/", "sys/", "unistd.h")}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(r'//.*|"(?:\\.|[^"\\])*"')


def layer_of(path: Path) -> str:
    """Layer of a file, by its path from the root: include/reprise/x.h, src/x/y.cc, tools/y.cc."""
    parts = path.parts
    if parts[0] == "tools":
        return "tools"
    if parts[0] == "include":
        return HEADER_LAYER.get(path.stem, path.stem)
    return parts[1] if len(parts) > 2 else "base"


def target_layer(name: str) -> str | None:
    """Layer of a quoted include, None for a header beside the file."""
    parts = name.split("/")
    if parts[0] == "reprise":
        return HEADER_LAYER.get(Path(name).stem, Path(name).stem)
    if parts[0] in LAYERS and len(parts) > 1:
        return parts[0]
    return None


def include_error(layer: str, outside: tuple[str, ...], bracket: str, name: str, own_folder: Path) -> str | None:
    if bracket == "<":
        if "/" in name or name.endswith(".h"):
            return None if name.startswith(outside) else f"{layer} may not include <{name}>"
        impure = name in IMPURE and layer in LAYERS[:LAYERS.index("io")]
        return f"{layer} may not include <{name}>: the core is pure" if impure else None
    target = target_layer(name)
    if layer == "tools":
        fine = name.startswith("reprise/") or (own_folder / name).exists()
        return None if fine else f'tools may include public headers only, not "{name}"'
    if target is None:
        if (own_folder / name).exists() or "/" not in name:
            return None
        return f'unknown include "{name}"'
    if target not in LAYERS:
        return f'"{name}" is in no layer'
    if LAYERS.index(target) > LAYERS.index(layer):
        return f'{layer} may not include "{name}": {target} is above it'
    return None


def errors_in(root: Path, path: Path) -> list[str]:
    relative = path.relative_to(root)
    layer = layer_of(relative)
    outside = OUTSIDE.get(relative.parent.as_posix(), ())
    if layer not in LAYERS and layer != "tools":
        return [f"{relative}: '{layer}' is not in the list of layers"]
    found = []
    pure = layer in LAYERS[:LAYERS.index("io")]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            error = include_error(layer, outside, match[1], match[2], path.parent)
        else:
            call = IMPURE_CALLS.search(COMMENT_OR_STRING.sub("", line)) if pure else None
            error = f"{layer} may not call {call[1]}(): the core is pure" if call else None
        if error:
            found.append(f"{relative}:{number}: {error}")
    return found


def check(root: Path) -> tuple[list[str], int]:
    files = [path for folder in ("include/reprise", "src", "tools") for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cc") and "torch" not in path.relative_to(root).parts]
    return [error for path in files for error in errors_in(root, path)], len(files)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    errors, count = check(root)
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    print(f"layering: {count} files, {len(errors)} errors")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
