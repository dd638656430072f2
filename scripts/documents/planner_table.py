#!/usr/bin/env python3
"""Plans the seven networks of data/papers with every planner and writes docs/planners.md.

    make build && python3 scripts/documents/planner_table.py [--seconds S] [--command PATH]

Each curve is planned once. For each share of the peak without recomputation, the tables show the fastest point of the
curve within it. The text around the tables comes from scripts/documents/planner_table.template.md.
"""

import argparse
import datetime
import json
import re
import string
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import bench  # noqa: E402

PAGE = ROOT / "docs" / "planners.md"
TEMPLATE = Path(__file__).with_suffix(".template.md")
NETWORKS = ["vgg19", "resnet50", "resnet152", "densenet161", "googlenet", "unet", "pspnet"]
SHARES = [90, 80, 70, 60, 50, 40, 30]  # budgets, in % of the peak without recomputation
BASELINE = "none"
CHAIN = "chain-static"  # any planner that reports the number of cuts
INFEASIBLE, STOPPED = 1, 4


@dataclass(frozen=True)
class Cell:
    overhead: float  # % of the forward pass
    peak: float  # % of the peak without recomputation

    def text(self, best: bool) -> str:
        overhead = f"{self.overhead:.1f}"
        return f"{f'**{overhead}**' if best else overhead} <sub>{self.peak:.0f}</sub>"


@dataclass(frozen=True)
class Network:
    title: str
    nodes: int
    stages: int
    few_cuts: str  # what the chain planners say about it, if anything
    cells: dict[str, list[Cell | None]]  # per planner, one per share
    least: dict[str, Cell]  # per planner, the plan of least peak
    took: dict[str, str]


def ask(command: Path, *arguments: str) -> dict:
    """The command's answer as JSON; ends the program if the command failed."""
    done = subprocess.run([command, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, INFEASIBLE, STOPPED):
        sys.exit(done.stderr.strip() or f"reprise {arguments[0]} exited with {done.returncode}")
    return json.loads(done.stdout)


def planners(command: Path) -> list[str]:
    """The names that `reprise curve --help` lists."""
    text = subprocess.run([command, "curve", "--help"], capture_output=True, text=True, check=True).stdout
    names = re.search(r"--planner ([a-z|-]+)=", text)
    if not names or BASELINE not in names[1].split("|"):
        sys.exit("no planners in reprise curve --help")
    return names[1].split("|")


def seconds(count: float) -> str:
    return f"{count:.3f} s" if count < 1 else f"{count:.1f} s"


def fastest_within(points: list[dict], peak: int, time: int, share: float) -> Cell | None:
    fitting = [p for p in points if 100 * p["peak_bytes"] <= share * peak]
    if not fitting:
        return None
    point = min(fitting, key=lambda p: (p["recompute_ns"], p["peak_bytes"]))
    return Cell(100 * point["recompute_ns"] / time, 100 * point["peak_bytes"] / peak)


def measure(command: Path, stem: str, names: list[str], limit: float) -> Network:
    graph = str(ROOT / "data" / "papers" / f"{stem}.graph.json")
    curves = {}
    for name in names:
        if sys.stderr.isatty():
            print(f"\r\033[K{stem}: {name}", end="", file=sys.stderr, flush=True)
        curves[name] = ask(command, "curve", graph, "--planner", name, "--seconds", str(limit))
    chain = ask(command, "plan", graph, "--planner", CHAIN, "--budget", "min")
    (base,) = curves[BASELINE]["points"]
    peak, time = base["peak_bytes"], base["time_ns"]
    cells, least, took = {}, {}, {}
    for name, curve in curves.items():
        cells[name] = [fastest_within(curve["points"], peak, time, share) for share in SHARES]
        lowest = min(curve["points"], key=lambda p: p["peak_bytes"])
        least[name] = Cell(100 * lowest["recompute_ns"] / time, 100 * lowest["peak_bytes"] / peak)
        took[name] = seconds(curve["seconds"]) + (" †" if curve["status"] == "stopped" else "")
    return Network(title=curves[BASELINE]["graph"], nodes=chain["stats"]["nodes"],
                   stages=chain["stats"]["lower_sets"] - 1, few_cuts=chain["message"], cells=cells, least=least,
                   took=took)


def best_overhead(network: Network, column: int) -> float | None:
    return min((row[column].overhead for row in network.cells.values() if row[column]), default=None)


def network_table(network: Network) -> list[str]:
    note = f"; {network.few_cuts}" if network.few_cuts else f"; a chain of {network.stages} stages"
    rows = [f"### {network.title}", "", f"{network.nodes} nodes{note}.", "",
            f"| planner | {' | '.join(f'{share} %' for share in SHARES)} | least peak | whole curve in |",
            f"|---|{'---:|' * (len(SHARES) + 2)}"]
    lowest = min(f"{cell.peak:.1f}".zfill(5) for cell in network.least.values())
    for name, row in network.cells.items():
        texts = [cell.text(cell.overhead == best_overhead(network, i)) if cell else "–" for i, cell in enumerate(row)]
        end = network.least[name]
        share = f"{end.peak:.1f} %"
        share = f"**{share}**" if f"{end.peak:.1f}".zfill(5) == lowest else share
        rows.append(f"| `{name}` | {' | '.join(texts)} | {share} <sub>+{end.overhead:.0f}</sub> | {network.took[name]} |")
    return [*rows, ""]


def winners_table(networks: list[Network]) -> list[str]:
    """The fastest planners at each share; several if they are equally fast."""
    rows = [f"| network | {' | '.join(f'{share} %' for share in SHARES)} |", f"|---|{'---|' * len(SHARES)}"]
    for network in networks:
        texts = []
        for i in range(len(SHARES)):
            best = best_overhead(network, i)
            names = [name for name, row in network.cells.items() if row[i] and row[i].overhead == best]
            texts.append(", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "") or "–")
        rows.append(f"| {network.title} | {' | '.join(texts)} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="stop planning one curve after this long")
    parser.add_argument("--command", type=Path, default=bench.BUILD / "tools" / "reprise", help="the reprise command")
    options = parser.parse_args()
    names = planners(options.command)
    networks = [measure(options.command, stem, names, options.seconds) for stem in NETWORKS]
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    facts = bench.facts()
    text = string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        facts, date=datetime.date.today().isoformat(), seconds=f"{options.seconds:g}",
        winners="\n".join(winners_table(networks)),
        tables="\n".join(line for network in networks for line in network_table(network)).rstrip())
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
