"""The kinds of errors. Every message says what is wrong, where, and what to do."""


class RepriseError(RuntimeError):
    """Base of all errors of Reprise."""


class InfeasibleBudget(RepriseError):
    """No plan fits the budget. `smallest_budget_bytes` would be enough; for a size of inputs that was refused before it was
    measured, no less is."""

    def __init__(self, message: str, budget_bytes: int, smallest_budget_bytes: int) -> None:
        super().__init__(message)
        self.budget_bytes = budget_bytes
        self.smallest_budget_bytes = smallest_budget_bytes


class BudgetExceeded(RepriseError):
    """The caller holds more memory than this step's plan left room for, or the online mode has nothing left to take away."""


class ModifiedInPlace(RepriseError):
    """A tensor that backward reads was changed after forward."""


class GraphBreak(RepriseError):
    """The model cannot be captured as one graph."""


class RanksDiffer(RepriseError):
    """Processes that communicate within a step would run different steps, such as with batches of different shapes."""


class RankAbsent(RepriseError):
    """A process that trains together with this one has ended, or has not come in time; the message names it."""


class Unsupported(RepriseError):
    """The model or the training loop does something that Reprise refuses."""


def cannot_be_trained(name: str) -> RepriseError:
    return RepriseError(f"{name} cannot be trained: nothing that it returns requires a gradient")


def first_line(error: BaseException) -> str:
    """What an error says, where a log or a note has room for one line."""
    return str(error).strip().partition("\n")[0]
