"""Fails when a file includes, or calls, what its layer may not know.

Layers of the core, lowest first; each may include itself and those before it. The core
knows the C++ standard library alone (and io a JSON library), and is pure: below io/ nothing
touches streams, files, clocks, random devices or the environment. Above the core, tools,
torch and python/bindings see its public headers alone, and torch also how files are read and
written as JSON; of the bindings only torch*.cc see torch, so that the planner imports without it.
Public headers for libtorch name its tensor and declare the rest, so that they compile quickly.
"""

import re
import sys
from pathlib import Path

LAYERS = ["base", "graph", "plan", "simulate", "solve", "io", "report", "umbrella"]
PURE = LAYERS[:LAYERS.index("io")]
# Public headers whose name is not their layer.
HEADER_LAYER = {"ids": "base", "error": "base", "validate": "plan", "reprise": "umbrella"}
# Standard headers that only io and above may use.
IMPURE = {"iostream", "istream", "ostream", "fstream", "filesystem", "chrono", "random", "cstdio",
          "thread", "ctime"}
# Calls that need no telling header.
IMPURE_CALLS = re.compile(r"(?<![\w.>])(?:std::)?(getenv|system|abort|exit|printf|rand)\s*\(")
# What a folder may include from outside the standard library; public headers have nothing.
LIBTORCH = ("torch/", "ATen/", "c10/", "cuda")
LIBTORCH_IN_PUBLIC = ("ATen/core/Tensor.h",)
OUTSIDE = {"src/io": ("nlohmann/",), "tools": ("CLI/", "nlohmann/", "sys/", "unistd.h"),
           "torch": LIBTORCH, "bindings": ("pybind11/",)}
ABOVE = ("tools", "torch", "bindings")  # of the core
JSON_PARTS = ("io/json_reader.h", "io/json_writer.h")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(r'//.*|"(?:\\.|[^"\\])*"')


def layer_of(path: Path) -> str:
    """Layer of a file, by its path from the root: include/reprise/x.h, src/x/y.cc, tools/y.cc."""
    parts = path.parts
    if parts[0] == "python":
        return "bindings"
    if "torch" in parts[:-1] or path.stem == "torch" and parts[0] == "include":
        return "torch"
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


def outside_of(path: Path, layer: str) -> tuple[str, ...]:
    """What a file may include from outside the standard library."""
    if layer == "torch" and path.parts[0] == "include":
        return LIBTORCH_IN_PUBLIC
    if layer in ABOVE:
        sees_torch = layer == "bindings" and path.stem.startswith("torch")
        return OUTSIDE[layer] + (LIBTORCH if sees_torch else ())
    return OUTSIDE.get(path.parent.as_posix(), ())


def above_error(root: Path, layer: str, name: str, own_folder: Path) -> str | None:
    """What is wrong with a quoted include of a file above the core."""
    of_torch = "torch" in Path(name).with_suffix("").parts
    public = name.startswith("reprise/") or of_torch and (root / name).exists()
    if (own_folder / name).exists() or public and (layer != "tools" or not of_torch):
        return None
    if layer == "torch" and name in JSON_PARTS:
        return None
    return f'{layer} may include public headers only, not "{name}"'


def include_error(root: Path, path: Path, layer: str, bracket: str, name: str) -> str | None:
    if bracket == "<":
        if "/" in name or name.endswith(".h"):
            fine = name.startswith(outside_of(path.relative_to(root), layer))
            return None if fine else f"{layer} may not include <{name}>"
        impure = name in IMPURE and layer in PURE
        return f"{layer} may not include <{name}>: the core is pure" if impure else None
    if layer == "torch" and root / "include" in path.parents and not name.startswith("reprise/"):
        return f'a public header may include public headers only, not "{name}"'
    if layer in ABOVE:
        return above_error(root, layer, name, path.parent)
    target = target_layer(name)
    if target is None:
        if (path.parent / name).exists() or "/" not in name:
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
    if layer not in LAYERS and layer not in ABOVE:
        return [f"{relative}: '{layer}' is not in the list of layers"]
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            error = include_error(root, path, layer, match[1], match[2])
        else:
            call = IMPURE_CALLS.search(COMMENT_OR_STRING.sub("", line)) if layer in PURE else None
            error = f"{layer} may not call {call[1]}(): the core is pure" if call else None
        if error:
            found.append(f"{relative}:{number}: {error}")
    return found


def check(root: Path) -> tuple[list[str], int]:
    folders = ("include/reprise", "src", "tools", "torch", "python")
    files = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cc")]
    return [error for path in files for error in errors_in(root, path)], len(files)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    errors, count = check(root)
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    print(f"layering: {count} files, {len(errors)} errors")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
