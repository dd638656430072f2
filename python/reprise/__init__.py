"""Plans recomputation for training inside a byte budget.

    graph = reprise.Graph.parse(Path("net.graph.json").read_text(), source="net.graph.json")
    found = reprise.solve(graph, budget_bytes=reprise.parse_bytes("6GiB"))
"""

from ._core import (
    Curve,
    Formula,
    Graph,
    Plan,
    PlanFile,
    Simulation,
    Solution,
    Timeline,
    __version__,
    format_bytes,
    parse_bytes,
    planner_names,
    simulate,
    solve,
    timeline,
    validate,
)

__all__ = [
    "Curve",
    "Formula",
    "Graph",
    "Plan",
    "PlanFile",
    "Simulation",
    "Solution",
    "Timeline",
    "__version__",
    "format_bytes",
    "parse_bytes",
    "planner_names",
    "simulate",
    "solve",
    "timeline",
    "validate",
]
