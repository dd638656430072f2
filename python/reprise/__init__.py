"""Plans recomputation for training inside a byte budget.

    graph, costs = reprise.parse_graph(Path("net.graph.json").read_text(), source="net.graph.json")
    found = reprise.solve(graph, costs, budget_bytes=reprise.parse_bytes("6GiB"))
"""

from typing import TYPE_CHECKING

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
from .collector import resting_collector
from .show.curve import CurvePoint, TimeMemoryCurve

__all__ = [
    "ActionKind",
    "BudgetExceeded",
    "Costs",
    "Curve",
    "CurvePoint",
    "Formula",
    "Graph",
    "GraphBreak",
    "InfeasibleBudget",
    "ModifiedInPlace",
    "Plan",
    "PlanFile",
    "RankAbsent",
    "RanksDiffer",
    "RepriseError",
    "Simulation",
    "Solution",
    "TimeMemoryCurve",
    "Timeline",
    "Unsupported",
    "__version__",
    "compile",
    "curve",
    "declare_repeatable",
    "explain",
    "export",
    "format_bytes",
    "format_graph",
    "online",
    "parse_bytes",
    "parse_graph",
    "planner_names",
    "preflight",
    "restore",
    "shard",
    "simulate",
    "solve",
    "timeline",
    "validate",
    "verify",
]

# What needs torch is imported at its first use, because planning alone does not need it. Type checkers see it at once.
_WITH_TORCH = {
    "compile": "api.compiled_model",
    "restore": "api.compiled_model",
    "verify": "api.verification",
    "explain": "api.model_plan",
    "preflight": "api.preflight",
    "online": "api.online",
    "export": "api.exported_step",
    "shard": "api.shard",
    "declare_repeatable": "trace.operators",
    "RepriseError": "errors",
    "InfeasibleBudget": "errors",
    "BudgetExceeded": "errors",
    "GraphBreak": "errors",
    "ModifiedInPlace": "errors",
    "RankAbsent": "errors",
    "RanksDiffer": "errors",
    "Unsupported": "errors",
}

if TYPE_CHECKING:
    from .api.compiled_model import compile, restore
    from .api.exported_step import export
    from .api.model_plan import explain
    from .api.online import online
    from .api.preflight import preflight
    from .api.shard import shard
    from .api.verification import verify
    from .errors import (
        BudgetExceeded,
        GraphBreak,
        InfeasibleBudget,
        ModifiedInPlace,
        RankAbsent,
        RanksDiffer,
        RepriseError,
        Unsupported,
    )
    from .trace.operators import declare_repeatable
else:
    def __getattr__(name: str) -> object:
        if name not in _WITH_TORCH:
            raise AttributeError(f"module 'reprise' has no attribute '{name}'")
        from importlib import import_module

        with resting_collector():
            module = import_module(f".{_WITH_TORCH[name]}", __name__)
        return getattr(module, name)
