"""The page on Hong et al.: checkpoints on chains, predicted and allocated."""

from __future__ import annotations

from chart import Series, chart

from .shared import (
    GIB, Places, Row, by_kind, failures, gib, last_line, origin, picture, ratio, rows_of, spread_note, table, write)

COMMAND = "python bench/gpu/hong.py"
NETWORKS = {"vgg19": "VGG-19, batch 128", "alexnet": "AlexNet, batch 1024", "resnet50": "ResNet-50, batch 96",
            "resnet152": "ResNet-152, batch 48", "unet": "U-Net, batch 8 of 572x572"}


def page(places: Places) -> None:
    rows = rows_of(places.results, "hong", COMMAND)
    lines = ["# Checkpoints on chains on a GPU", "", *origin(rows, COMMAND), "",
             "fp32, peaks in GiB. Predicted: by Hong et al.'s formula for sets of checkpoints, by Reprise's simulator for its "
             "own plans. Between layers: the most that was allocated when a layer was done, which is what the authors measured. "
             "Highest: the allocator's own. Last two columns: `auto` within that highest."]
    order = list(NETWORKS)
    found = by_kind(rows)
    for case in sorted(found, key=lambda case: (order.index(case) if case in order else len(order), case)):
        lines += ["", f"## {NETWORKS.get(case, case)}", "", *one_network(places, case, found[case])]
    write(places.output / "tables" / "hong-gpu.md", lines)


def one_network(places: Places, case: str, kinds: dict[str, Row]) -> list[str]:
    order = sorted((kind for kind, row in kinds.items() if not kind.startswith("auto=") and "ratio" in row),
                   key=lambda kind: (kind != "plain", kind[0] != "{", kind.startswith("captured"), kind == "auto-least"))
    lines = table(["", "predicted", "between layers", "highest", "of the plain step's time", "`auto`, peak", "time"],
                  [one_row(kinds, kind) for kind in order])
    lines += spread_note(kinds.values())
    refused = [f"- {kind}: {last_line(row['refused'])}" for kind, row in kinds.items() if "refused" in row]
    lines += (["", *refused] if refused else []) + failures(kinds.values(), lambda row: row["kind"])
    for kind in ("{3,11}", "chain"):
        if "curve" in kinds.get(kind, {}):
            name = f"hong-{case}-{kind.strip('{}').replace(',', '-')}"
            drawn = layer_curve(f"{NETWORKS.get(case, case)}, {kind}", kinds[kind]["curve"])
            lines += ["", f"{kind}, layer by layer:", *picture(places, name, "memory of each layer", drawn)]
    return lines


def one_row(kinds: dict[str, Row], kind: str) -> list[str]:
    row, same = kinds[kind], kinds.get(f"auto={kind}", {})
    checkpoints = row.get("checkpoints")
    name = f"{kind} {{{', '.join(map(str, checkpoints))}}}" if checkpoints and kind[0] != "{" else kind
    between = row.get("allocated_between_layers_bytes")
    ours = [gib(same["peak_bytes"]), ratio(same)] if "ratio" in same else ["no plan" if "refused" in same else "", ""]
    return [name, gib(row["predicted_bytes"]) if "predicted_bytes" in row else "", gib(between) if between else "",
            gib(row["peak_bytes"]), ratio(row), *ours]


def layer_curve(title: str, curve: dict[str, list[list[int]]]) -> str:
    entries = [*curve["forward"], *reversed(curve["backward"])]
    names = ("predicted", "when the layer is done", "highest")
    return chart(title, "layers forward, then backward", "GiB", [
        Series(name, [(float(k + 1), entry[i] / GIB) for k, entry in enumerate(entries)], line=True, marks=False, strong=i == 0)
        for i, name in enumerate(names)])
