"""Fails if a file includes, imports or calls something that its layer may not use.

There are three lists of folders, lowest first. A file may use its own folder and those before it in its list.

The core uses only the C++ standard library (io also uses a JSON library). It is pure: below io/, nothing touches
streams, files, clocks, random devices or the environment. Tools, runtime and python/bindings see only the public headers of
the core, with two exceptions: the runtime also sees how JSON is read and written, and tools and bindings also see the
planners' knobs. Among the bindings, only torch*.cc see the runtime, so that the planner can be imported without it. Public
headers for libtorch include the header of its tensor and declare the rest, so that they compile quickly. In Python, modules
directly in the package are the lowest layer, and imports must not form a circle. One module may import Inductor, or name a
module of it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = ["base", "graph", "papers", "plan", "simulate", "place", "solve", "io", "report", "umbrella"]
RUNTIME = ["base", "device", "program", "files", "kernels", "costs", "engine", "record", "session", "online",
           "checkpoint", "umbrella"]
PYTHON = ["base", "show", "trace", "forecast", "api", "umbrella"]
INDUCTOR, IMPORTS_INDUCTOR = "torch._inductor", ("trace", "fused", "internals")
PURE = CORE[:CORE.index("io")]
# The layers of public headers that are not named after their layer. A header of the runtime belongs to the lowest folder
# that includes it.
CORE_HEADERS = {"ids": "base", "error": "base", "costs": "graph", "graph_builder": "graph", "validate": "plan",
                "lives": "plan", "plan_family": "solve", "reprise": "umbrella"}
RUNTIME_HEADERS = {"errors": "base", "training_step": "record", "torch": "umbrella"}
# Standard headers that only io and above may use.
IMPURE = {"iostream", "istream", "ostream", "fstream", "filesystem", "chrono", "random", "cstdio",
          "thread", "ctime"}
# Impure functions, which can be called without including one of the headers above.
IMPURE_CALLS = re.compile(r"(?<![\w.>])(?:std::)?(getenv|system|abort|exit|printf|rand)\s*\(")
# What a part may include from outside the standard library. The public headers of the core may include nothing.
LIBTORCH = ("torch/", "ATen/", "c10/", "cuda")
OUTSIDE = {"src/io": ("nlohmann/",), "tools": ("CLI/", "nlohmann/", "sys/", "unistd.h"),
           "include/torch": ("ATen/core/Tensor.h",), "runtime": (*LIBTORCH, "dlfcn.h", "sys/", "unistd.h"),
           "bindings": ("pybind11/",), "bindings/torch": ("pybind11/", *LIBTORCH)}
INNER = {"runtime": ("io/json_reader.h", "io/json_writer.h", "io/plan_json.h"), "tools": ("solve/planner_knobs.h",),
         "bindings": ("solve/planner_knobs.h",)}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(r'//.*|"(?:\\.|[^"\\])*"')


def part_and_layer(path: Path) -> tuple[str, str]:
    """The part that a C++ file belongs to, from its path relative to the root, and its layer ("" if the part has none)."""
    folder, stem = path.parts[0], path.stem
    if folder == "include":
        if "torch" in (stem, path.parent.name):
            return "include/torch", RUNTIME_HEADERS.get(stem, stem)
        return "include", CORE_HEADERS.get(stem, stem)
    if folder in ("src", "runtime"):
        return folder, path.parts[1] if len(path.parts) > 2 else "base"
    if folder == "python":
        return "bindings/torch" if stem.startswith("torch") else "bindings", ""
    return folder, ""


def upward(layers: list[str], layer: str, target: str, name: str) -> str | None:
    if target not in layers:
        return f'"{name}" is in no layer'
    if layers.index(target) > layers.index(layer):
        return f'{layer} may not include "{name}": {target} is above it'
    return None


def core_error(path: Path, layer: str, name: str) -> str | None:
    """What is wrong with a quoted include in a file of the core; None if nothing is."""
    parts = name.split("/")
    if parts[0] == "reprise":
        part, target = part_and_layer(Path("include", name))
        return upward(CORE, layer, target, name) if part == "include" else f'the core may not include "{name}"'
    if parts[0] in CORE and len(parts) > 1:
        return upward(CORE, layer, parts[0], name)
    return None if (path.parent / name).exists() or len(parts) == 1 else f'unknown include "{name}"'


def above_error(root: Path, path: Path, part: str, layer: str, name: str) -> str | None:
    """What is wrong with a quoted include in a file above the core; None if nothing is."""
    sees_runtime = part in ("runtime", "include/torch", "bindings/torch")
    target = part_and_layer(Path("include", name)) if name.startswith("reprise/") else part_and_layer(Path(name))
    if target[0] == "include" or (part in ("tools", "bindings", "bindings/torch") and (path.parent / name).exists()):
        return None
    if (target[0] == "include/torch" and sees_runtime) or (target[0] == "runtime" and (root / name).exists() and (
            sees_runtime and part != "include/torch")):
        return upward(RUNTIME, layer or "umbrella", target[1], name)
    if name in INNER.get(part, ()):
        return None
    return f'{part} may not include "{name}"'


def include_error(root: Path, path: Path, bracket: str, name: str) -> str | None:
    relative = path.relative_to(root)
    part, layer = part_and_layer(relative)
    in_core = part in ("include", "src")
    if bracket == "<":
        if "/" in name or name.endswith(".h"):
            allowed = OUTSIDE.get(part, OUTSIDE.get(relative.parent.as_posix(), ()))
            return None if name.startswith(allowed) else f"{layer or part} may not include <{name}>"
        impure = in_core and name in IMPURE and layer in PURE
        return f"{layer} may not include <{name}>: the core is pure" if impure else None
    return core_error(path, layer, name) if in_core else above_error(root, path, part, layer, name)


def cpp_errors(root: Path, path: Path) -> Iterator[str]:
    relative = path.relative_to(root)
    part, layer = part_and_layer(relative)
    layers = CORE if part in ("include", "src") else RUNTIME
    if layer and layer not in layers:
        yield f"{relative}: '{layer}' is not in the list of layers"
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            error = include_error(root, path, match[1], match[2])
        else:
            pure = part in ("include", "src") and layer in PURE
            call = IMPURE_CALLS.search(COMMENT_OR_STRING.sub("", line)) if pure else None
            error = f"{layer} may not call {call[1]}(): the core is pure" if call else None
        if error:
            yield f"{relative}:{number}: {error}"


def python_layer(module: tuple[str, ...]) -> str:
    """The layer of a module, from its name inside the package; () is the package itself."""
    if module in ((), ("__main__",)):
        return "umbrella"
    return module[0] if len(module) > 1 or module[0] in PYTHON else "base"


def imports(package: Path, path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The line and the module of every import of the package's own modules, anywhere in the file."""
    folder = module if path.stem == "__init__" else module[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
            yield from ((node.lineno, name[1:]) for name in names if name[0] == package.name)
        elif isinstance(node, ast.ImportFrom):
            base = folder[:len(folder) + 1 - node.level] if node.level else ()
            named = tuple(node.module.split(".")) if node.module else ()
            if not node.level and named[0] != package.name:
                continue
            target = (*base, *named) if node.level else named[1:]
            for alias in node.names:  # The name is a module of a folder, or something inside a module.
                inner = package.joinpath(*target, alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir() or (target == () and alias.name[0] == "_")
                yield node.lineno, (*target, alias.name) if is_module else target


def inductor_lines(path: Path) -> Iterator[int]:
    """Lines that import torch._inductor, reach for it as an attribute, or name a module of it."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                names = [f"{module}.{alias.name}" for alias in node.names]
            case ast.Attribute():
                names = [ast.unparse(node)]
            case ast.Constant(value=str(text)) if " " not in text:
                names = [text]
            case _:
                continue
        if any(f"{name}.".startswith(f"{INDUCTOR}.") for name in names):
            yield node.lineno


def circles(arrows: dict[tuple[str, ...], set[tuple[str, ...]]]) -> Iterator[str]:
    """The circles of imports, each reported once."""
    done: set[tuple[str, ...]] = set()

    def visit(module: tuple[str, ...], way: list[tuple[str, ...]]) -> Iterator[str]:
        if module in way:
            yield "circle: " + " -> ".join(".".join(m) for m in [*way[way.index(module):], module])
        elif module not in done:
            for target in sorted(arrows.get(module, ())):
                yield from visit(target, [*way, module])
            done.add(module)

    for module in sorted(arrows):
        yield from visit(module, [])


def python_errors(root: Path, package: Path, paths: list[Path]) -> Iterator[str]:
    arrows: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in paths:
        names = path.relative_to(package).with_suffix("").parts
        module = names[:-1] if names[-1] == "__init__" else names
        layer = python_layer(module)
        if layer not in PYTHON:
            yield f"{path.relative_to(root)}: '{layer}' is not in the list of layers"
            continue
        if module != IMPORTS_INDUCTOR:
            yield from (f"{path.relative_to(root)}:{number}: only {'.'.join(IMPORTS_INDUCTOR)} may import {INDUCTOR}"
                        for number in sorted(set(inductor_lines(path))))
        for number, target in imports(package, path, module):
            above = python_layer(target)
            if above in PYTHON and PYTHON.index(above) > PYTHON.index(layer):
                yield f"{path.relative_to(root)}:{number}: {layer} may not import {'.'.join(target) or 'the package'}: " \
                      f"{above} is above it"
            arrows.setdefault(module, set()).add(target)
    yield from circles(arrows)


def check(root: Path) -> tuple[list[str], int]:
    folders = ("include/reprise", "src", "tools", "runtime", "python/bindings")
    cpp = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cc")]
    package = root / "python" / "reprise"
    modules = sorted(package.rglob("*.py"))
    errors = [error for path in cpp for error in cpp_errors(root, path)]
    return errors + list(python_errors(root, package, modules)), len(cpp) + len(modules)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    errors, count = check(root)
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    print(f"layering: {count} files, {len(errors)} errors")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
