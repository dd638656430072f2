"""Plans recomputation for training inside a byte budget.

    graph, costs = reprise.parse_graph(Path("net.graph.json").read_text(), source="net.graph.json")
    found = reprise.solve(graph, costs, budget_bytes=reprise.parse_bytes("6GiB"))
"""

from ._core import (
    ActionKind,
    Costs,
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
    format_graph,
    parse_bytes,
    parse_graph,
    planner_names,
    simulate,
    solve,
    timeline,
    validate,
)
from .api.curve import curve
from .show.curve import CurvePoint, TimeMemoryCurve

__all__ = [
    "ActionKind",
    "Costs",
    "Curve",
    "CurvePoint",
    "Formula",
    "Graph",
    "Plan",
    "PlanFile",
    "Simulation",
    "Solution",
    "TimeMemoryCurve",
    "Timeline",
    "__version__",
    "curve",
    "format_bytes",
    "format_graph",
    "parse_bytes",
    "parse_graph",
    "planner_names",
    "simulate",
    "solve",
    "timeline",
    "validate",
]

# What needs torch is imported when it is first used: planning alone does without.
_WITH_TORCH = {
    "compile": "api.compiled_model",
    "restore": "api.compiled_model",
    "verify": "api.verification",
    "explain": "api.model_plan",
    "preflight": "api.preflight",
    "export": "api.exported_step",
    "declare_repeatable": "trace.operators",
    "RepriseError": "errors",
    "InfeasibleBudget": "errors",
    "BudgetExceeded": "errors",
    "GraphBreak": "errors",
    "Unsupported": "errors",
}
__all__ += list(_WITH_TORCH)


def __getattr__(name: str) -> object:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'reprise' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_WITH_TORCH[name]}", __name__), name)
