"""How long planning with the host's memory takes, beside planning without it, on the measured steps of data/steps.

    make build && python3 bench/offload_time.py [--command PATH] [--steps NAME,...] [--jobs N]

Every step is planned by `auto` at shares of the memory above what is there from the start: without the host's memory, and at
once after that with as much of it as is wanted behind a link of 50 GB/s each way. Times are seconds of a processor, and `ratio`
is how many times as long the second takes, so that other work on the machine hardly counts.
"""

import statistics

from planned_steps import Step, run

SHARES = (50, 30)
HOST = ("--host-budget", "1000GiB", "--link", "50GB/s")


def row(step: Step, share: int) -> dict:
    (without, found_without), (joint, found_joint) = step.plan(share), step.plan(share, *HOST)
    seconds = [plan["processor_seconds"] for plan in (without, joint)]
    made = {"share": share, "feasible": found_without and found_joint, "without_s": seconds[0], "with_s": seconds[1],
            "ratio": round(seconds[1] / seconds[0], 2)}
    if found_joint:
        made["overhead_percent"] = round(100 * (joint["time_ns"] - step.time_ns) / step.time_ns, 2)
    return made


def summary(steps: dict[str, dict]) -> dict:
    ratios = [row["ratio"] for step in steps.values() for row in step["rows"] if row["feasible"]]
    return {"link_GB_per_s": 50, "summary": {"plans": len(ratios), "median_ratio": round(statistics.median(ratios), 2),
                                             "highest_ratio": max(ratios)}}


def line(rows: list[dict]) -> str:
    return "  ".join(f"{row['share']} %: {row['ratio']}" for row in rows if row["feasible"])


if __name__ == "__main__":
    run("offload_time", __doc__, [(share,) for share in SHARES], row, line, summary)
