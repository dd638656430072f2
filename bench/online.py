"""What the online method recomputes on the measured steps of data/steps, beside planner `auto`.

    make build && python3 bench/online.py [--command PATH] [--steps NAME,...] [--jobs N]

Every step is planned at shares of the memory above what is there from the start: by `auto`; by one run of the online method
with the budget as its own, as published and with what was added to it; and by planner `online`, which takes the fastest of
many such runs. At the smallest share, `auto` is also asked without the courses of these runs. Nothing runs on a device: times
are simulated. The numbers are the same on every machine, because the planner's work is limited by a count and not by a clock;
only the seconds differ.
"""

from planned_steps import Step, run

SHARES = (80, 60, 50, 40, 30, 20)
ONE_RUN = ("--planner", "online", "--judge", "formula")
WITHOUT = "auto_without_courses"
TIGHT_SHARE = 20
KINDS: dict[str, tuple[str, ...]] = {
    "auto": (),
    WITHOUT: ("--without", "courses"),
    "as_published": (*ONE_RUN, "--as-published"),
    "one_run": ONE_RUN,
    "online": ("--planner", "online"),
}


def row(step: Step, share: int, kind: str) -> dict:
    """One plan; recomputation in percent of the step, and the smallest budget known if there is no plan."""
    found, is_found = step.plan(share, *KINDS[kind])
    made = {"share": share, "kind": kind, "seconds": found["seconds"]}
    if not is_found:
        return made | {"smallest_budget_bytes": found["smallest_budget_bytes"]}
    return made | {"peak_bytes": found["peak_bytes"], "recompute_ns": found["recompute_ns"],
                   "percent": round(100 * found["recompute_ns"] / step.time_ns, 2)}


def line(rows: list[dict]) -> str:
    return "  ".join(f"{share} %: " + " / ".join(str(row.get("percent", "-")) for row in rows if row["share"] == share)
                     for share in SHARES)


if __name__ == "__main__":
    run("online", __doc__, [(share, kind) for share in SHARES for kind in KINDS if kind != WITHOUT or share <= TIGHT_SHARE],
        row, line, lambda _: {})
