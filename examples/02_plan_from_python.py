"""Plans a network of the literature from Python. It needs the package reprise, but not torch."""

from pathlib import Path

import reprise

FILE = Path(__file__).parents[1] / "data/papers/resnet50.graph.json"


def main() -> None:
    graph, costs = reprise.parse_graph(FILE.read_text(), source=FILE.name)
    found = reprise.solve(graph, costs, budget_bytes=reprise.parse_bytes("1.8GB"))
    if not found.found:
        raise SystemExit(f"the smallest budget is {found.smallest_budget_bytes} bytes")
    print(f"{len(found.plan)} actions, peak {reprise.format_bytes(found.simulation.peak_bytes)}")


if __name__ == "__main__":
    main()
