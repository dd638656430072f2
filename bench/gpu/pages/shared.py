"""What all pages share: rows, titles of networks, cells of tables, and the text about where the numbers come from."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
GIB = 2**30
APART_PERCENT = 10.0  # If samples are further apart than this, the time gets a mark.
# The networks of models/steps.py. The seven of Kusumoto et al. come first, in the order of their table.
TITLES = {
    "pspnet_2": "PSPNet, batch 2 of 713x713", "unet_8x572": "U-Net, batch 8 of 572x572", "resnet50_96": "ResNet50, batch 96",
    "resnet152_48": "ResNet152, batch 48", "vgg19_64": "VGG19, batch 64", "densenet161_32": "DenseNet161, batch 32",
    "googlenet_256": "GoogLeNet, batch 256", "densenet161_128": "DenseNet161, batch 128",
    "convnext_base_128": "ConvNeXt-B, batch 128", "gpt2_medium_8x1024": "GPT-2 medium, 8 x 1024",
    "bert_large_32x512": "BERT large with dropout, 32 x 512", "vit_large_64": "ViT-L/16, batch 64",
    "llama_1b_4x2048": "Llama of 1.2 billion parameters, 4 x 2048"}


class CannotWrite(Exception):
    """There are no rows to write a page from, or README.md has no marks to write between."""


@dataclass(frozen=True)
class Places:
    results: Path
    output: Path
    readme: Path


def rows_of(folder: Path, name: str, command: str) -> list[Row]:
    path = folder / f"{name}-cuda"
    rows = [row for file in sorted(path.glob("*.json")) for row in json.loads(file.read_text())["results"]]
    if not rows:
        raise CannotWrite(f"{path} has no rows: run {command} on a GPU first")
    return rows


def cases_of(rows: list[Row]) -> list[str]:
    order = list(TITLES)
    return sorted({row["case"] for row in rows}, key=lambda case: (order.index(case) if case in order else len(order), case))


def title_of(case: str) -> str:
    return TITLES.get(case, case)


def network_of(case: str) -> str:
    """The title of a network without batch and input sizes."""
    return title_of(case).partition(", ")[0]


def by_kind(rows: list[Row]) -> dict[str, dict[str, Row]]:
    return {case: {row["kind"]: row for row in rows if row["case"] == case} for case in cases_of(rows)}


def origin(rows: list[Row], command: str) -> list[str]:
    """The lines that say where the numbers come from. There is one for each machine and version."""
    dates: dict[str, set[str]] = {}
    for f in (row["facts"] for row in rows if row["facts"]):
        machine = ", ".join(str(part) for part in (
            f["gpu"] if "gpu" in f else f["machine"], f"torch {f['torch']}", f"CUDA {f['cuda']}" if "cuda" in f else "no GPU",
            f"cuDNN {f['cudnn']}" if "cudnn" in f else "", f"cudnn.benchmark {'on' if f.get('cudnn_benchmark') else 'off'}",
            f"TF32 for convolutions {'on' if f.get('tf32') else 'off'}") if part)
        dates.setdefault(machine, set()).add(f["date"])
    lines = [f"Written by `python3 bench/gpu/tables.py` from the rows that `{command}` measured; not edited by hand. "
             "How they are measured: [benchmarks](../benchmarks.md).", "",
             *(f"- {machine}, {' to '.join(sorted({min(days), max(days)}))}" for machine, days in sorted(dates.items()))]
    if len(dates) > 1:
        lines += ["", "**These rows are not all of one machine and version.**"]
    return lines


def table(head: list[str], body: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|",
            *("| " + " | ".join(cells) + " |" for cells in body)]


def gib(count: int) -> str:
    return f"{count / GIB:.2f}"


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return textwrap.shorten((lines[-1] if lines else "").replace("|", "/"), 160, placeholder=" ...")


def apart_percent(row: Row) -> float:
    """How far apart samples were, in percent of their median: the row's own or those of eager beside it, whichever is more."""
    pairs = ((row.get(f"{who}spread_ms"), row.get(f"{who}ms")) for who in ("", "eager_"))
    return max((100 * (spread[1] - spread[0]) / ms for spread, ms in pairs if spread and ms), default=0.0)


def ratio(row: Row) -> str:
    return f"{row['ratio']:.2f}{mark(row)}"


def mark(row: Row) -> str:
    return "*" if apart_percent(row) > APART_PERCENT else ""


def spread_note(rows: Iterable[Row]) -> list[str]:
    """A paragraph on the spread of samples, for the place below the table of these rows."""
    known = [apart_percent(row) for row in rows if "ms" in row]
    if not known:
        return []
    text = "Spread of samples, (most - least) / median, the larger of a row's own and eager's beside it: " \
           f"{statistics.median(known):.1f} % in the median row, {max(known):.1f} % at most."
    if max(known) > APART_PERCENT:
        text += f" `*`: above {APART_PERCENT:.0f} %, the time is rough."
    return ["", text]


def below_one(rows: Iterable[Row]) -> list[str]:
    """A paragraph about ratios below one, if a plan that runs eager's kernels took less time than eager."""
    if not any(row.get("ratio", 1.0) < 0.97 for row in rows):
        return []
    return ["", "Below 1: the same kernels, for which eager waits for the CPU, longer in some processes than in others. Such "
            "ratios say little about recomputation."]


def is_clear(faster: Row, slower: Row) -> bool:
    """Whether the first row is faster beyond the spread of the samples of both, as a multiple of eager's time and also in
    milliseconds: eager may have waited for the CPU longer in one of the two processes."""
    units = [(faster["eager_ms"], slower["eager_ms"]), (1, 1)]
    return all(faster["spread_ms"][1] / a < slower["spread_ms"][0] / b for a, b in units)


def refusal(row: Row) -> str:
    if "least_bytes" in row:
        return f"nothing was found within {gib(row['budget_bytes'])} GiB, the smallest budget known is " \
               f"{gib(row['least_bytes'])} GiB"
    return last_line(row["refused"])


def failures(rows: Iterable[Row], name: Callable[[Row], str]) -> list[str]:
    found = [f"- {name(row)} failed: {last_line(row['error'])}" for row in rows if "error" in row]
    return ["", *found] if found else []


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(path)


def picture(places: Places, name: str, alternative: str, drawn: str) -> list[str]:
    """Saves a picture, and returns the lines of a page that show it."""
    path = places.output / "pictures" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawn)
    return ["", f"![{alternative}](../pictures/{path.name})"]
