"""How many multi-turn sessions an hour a simulated server finishes: fixed numbers of sessions beside the session gates.

    python benchmarks/gates_sessions.py [--cases 8b 32b] [--policies budget concur] [--seeds 1 2 3] [--jobs 2] [--quick]

Prints one table a case. The oracle is the best fixed number of sessions, by the sessions finished an hour after the
first 35 % of the time, with its standard error over the seeds; ``whole`` is the same over all of the time, the start
included. All rows of a seed work on the same sessions. Where something happens to the server, three columns more tell
the sessions an hour before it, in the 20 minutes after it, and later.

``budget`` is told the server's capacity, ``learned`` only how much of each prompt was cached, ``hidden`` neither; the
default admission policy limits the requests where nothing else is said, and the oldest session is served first but for
``fifo``, which is first come first served.

``--quick`` plays a third of the time with one seed and half of the fixed numbers: enough to see the shape.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import mean, stdev
from typing import Any

import attrs

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.limits.gradient2 import Gradient2, Gradient2Settings
from scavenge.core.limits.tide import Tide, TideSettings
from scavenge.core.sessions.table import SESSION_POLICIES
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.testing.agent_loop import AgentCase, AgentLoop
from scavenge.testing.agent_report import AgentReport, Stretch
from scavenge.testing.agents import AgentWorkload, Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop_case import Change, Tells

FIXED = "fixed"
SETTLED = 0.35
"""The part of the time that is left out of all columns but ``whole``."""
AFTERMATH_S = 1200.0

H100_8B = BatchingSettings()
"""Llama-3.1-8B in 16 bits on one H100."""
TP2_32B = attrs.evolve(
    H100_8B, weights_s=0.0125, gemm_s=70e-6, kv_read_s=0.05e-6, attention_s=2.6e-9, kv_tokens=330_000
)
"""A model of the 32B class on two of them."""

CODING = AgentWorkload()
LONG_CODING = AgentWorkload(
    first_prompt_tokens=4000,
    turns=Spread(35, 0.4),
    output_tokens=Spread(300, 0.8),
    tool_tokens=Spread(1200, 1.0),
    tool_s=Spread(3.0, 1.0),
    max_context_tokens=90_000,
)
RESEARCH = AgentWorkload(
    first_prompt_tokens=1500,
    turns=Spread(12, 0.6),
    output_tokens=Spread(500, 1.0),
    tool_tokens=Spread(3500, 1.2),
    tool_s=Spread(20.0, 1.5),
    max_context_tokens=100_000,
)
"""Few calls, long pages, slow tools."""
SHELL = AgentWorkload(
    first_prompt_tokens=7000,
    turns=Spread(60, 0.5),
    output_tokens=Spread(120, 1.0),
    tool_tokens=Spread(300, 1.5),
    tool_s=Spread(1.0, 1.0),
    max_context_tokens=60_000,
)
"""Many small steps with tools that answer at once."""


@attrs.frozen
class Rows:
    """A case, and what to try on it."""

    case: AgentCase
    fixed: Sequence[int]
    """The fixed numbers of sessions to compare with."""
    requests: Sequence[int] = ()
    """Request limits to try with 128 live sessions."""


CASES = {
    "8b": Rows(AgentCase(H100_8B, CODING, 5400), (8, 12, 16, 18, 20, 22, 24, 32, 40), (8, 10, 16, 32)),
    "32b": Rows(AgentCase(TP2_32B, LONG_CODING, 7200), (4, 5, 6, 7, 8, 9, 10, 12, 16), (4, 5, 8, 16)),
    "halved": Rows(AgentCase(H100_8B, CODING, 7200, (Change(3600, kv=0.5),)), (8, 9, 10, 11, 12, 16, 20), (5, 10)),
    "outage": Rows(AgentCase(H100_8B, CODING, 5400, (Change(2700, down_s=60),)), (14, 16, 18, 20, 22)),
    "research": Rows(AgentCase(H100_8B, RESEARCH, 5400), (12, 16, 18, 20, 22, 24, 28, 32, 48), (8, 16)),
    "shell": Rows(AgentCase(TP2_32B, SHELL, 7200), (6, 8, 10, 12, 14, 16, 20, 28), (6, 12)),
}
"""The first two are those that the gates were made for, the last two are there to be surprised by."""

LEARNED = {"tells": Tells.NOTHING}
HIDDEN = {"tells": Tells.NOTHING, "tells_cached": False}
POLICIES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "budget": ("budget", "tide", {}),
    "learned": ("budget", "tide", LEARNED),
    "hidden": ("budget", "tide", HIDDEN),
    "budget-256": ("budget", "256", {}),
    "learned-256": ("budget", "256", LEARNED),
    "hidden-256": ("budget", "256", HIDDEN),
    "concur": ("concur", "tide", {}),
    "follow": ("follow", "tide", {}),
    "follow-gradient2": ("follow", "gradient2", {}),
    "off": ("off", "tide", {}),
}
"""A session policy, what limits the requests, and what is different about the server."""


@attrs.frozen
class Row:
    """One line of a table."""

    name: str
    sessions: str
    settings: Mapping[str, Any]
    requests: str
    case: AgentCase


@attrs.frozen
class Played:
    """How a row came out with one seed."""

    case: str
    row: str
    report: AgentReport
    cpu_s: float


def rows_of(chosen: Rows, policies: Sequence[str], quick: bool) -> Iterator[Row]:
    """The fixed numbers first, the policies last."""
    case = chosen.case
    if quick:
        changes = tuple(attrs.evolve(change, at=change.at / 3) for change in case.changes)
        case = attrs.evolve(case, seconds=case.seconds / 3, changes=changes)
    for limit in chosen.fixed[:: 2 if quick else 1]:
        yield Row(f"{FIXED} {limit}", "fixed", {"limit": limit}, "256", case)
    for requests, is_fifo in product(chosen.requests, (True, False)):
        name = f"128 live, {requests} requests" + (" fifo" if is_fifo else "")
        yield Row(name, "fixed", {"limit": 128}, f"{requests}", attrs.evolve(case, oldest_first=not is_fifo))
    for policy in policies:
        sessions, admission, changed = POLICIES[policy]
        yield Row(policy, sessions, {}, admission, attrs.evolve(case, **changed))


def play(case: str, row: Row, seed: int) -> Played:
    """Run one row with one seed."""
    began = time.process_time()
    kind = SESSION_POLICIES[row.sessions]
    sessions = kind.create(kind.config(**row.settings))
    report = AgentLoop(row.case, sessions, make_admission(row.requests), seed).run()
    return Played(case, row.name, report, time.process_time() - began)


def make_admission(name: str) -> AdmissionPolicy:
    """A number of requests, or an admission policy with its default settings."""
    match name:
        case "tide":
            return Tide(TideSettings())
        case "gradient2":
            return Gradient2(Gradient2Settings())
        case _:
            return Fixed(FixedSettings(int(name)))


def show(name: str, case: AgentCase, played: Sequence[Played]) -> None:
    """Print the table of one case."""
    by_row: dict[str, list[AgentReport]] = {}
    for one in played:
        by_row.setdefault(one.row, []).append(one.report)
    seconds, changes = by_row[played[0].row][0].moments[-1].at, case.changes
    stretches = {row: [report.stretch(SETTLED * seconds) for report in reports] for row, reports in by_row.items()}
    rates = {row: mean(stretch.sessions_per_h for stretch in found) for row, found in stretches.items()}
    oracle = max((row for row in rates if row.startswith(FIXED)), key=lambda row: rates[row])
    print(f"\n{name}: the best is {oracle} with {rates[oracle]:.0f} sessions an hour ({len(played)} runs)")
    columns = f"{'':28}{'sess/h':>7}{'%best':>6}{'±':>4}{'whole%':>7}{'tok/s':>7}{'hit':>6}{'live':>6}{'paused':>7}"
    columns += f"{'running':>8}{'budget':>8}" + (f"{'before':>8}{'20 min':>7}{'later':>6}" if changes else "")
    print(columns)
    whole = mean(report.stretch().sessions_per_h for report in by_row[oracle])
    for row, reports in by_row.items():
        print(line(row, stretches[row], reports, rates[oracle], whole) + around(reports, seconds, case))


def line(row: str, found: Sequence[Stretch], reports: Sequence[AgentReport], best: float, whole: float) -> str:
    """One row: means over the seeds, and the standard error of the comparison."""
    rates = [stretch.sessions_per_h for stretch in found]
    error = 100 * stdev(rates) / best / len(rates) ** 0.5 if len(rates) > 1 else 0.0
    wholly = mean(report.stretch().sessions_per_h for report in reports)
    budget = mean(report.moments[-1].budget_tokens or 0.0 for report in reports)
    return (
        f"{row:28}{mean(rates):7.0f}{100 * mean(rates) / best:6.0f}{error:4.0f}{100 * wholly / whole:7.0f}"
        f"{mean(one.tokens_per_s for one in found):7.0f}{mean(one.hit_ratio for one in found):6.2f}"
        f"{mean(one.live for one in found):6.0f}{mean(one.paused for one in found):7.0f}"
        f"{mean(one.running for one in found):8.1f}" + (f"{budget / 1000:7.0f}k" if budget else f"{'':8}")
    )


def around(reports: Sequence[AgentReport], seconds: float, case: AgentCase) -> str:
    """The sessions an hour before something happens, soon after it, and later."""
    if not case.changes:
        return ""
    scale = seconds / case.seconds
    at, later_at = scale * case.changes[0].at, scale * (case.changes[0].at + AFTERMATH_S)
    spans = ((scale * AFTERMATH_S, at), (at, later_at), (later_at, seconds))
    before, soon, later = (mean(one.stretch(*span).sessions_per_h for one in reports) for span in spans)
    return f"{before:8.0f}{soon:7.0f}{later:6.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="processes, default %(default)s")
    parser.add_argument("--quick", action="store_true", help="a third of the time, one seed, every other fixed number")
    arguments = parser.parse_args()
    seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    with ProcessPoolExecutor(arguments.jobs) as workers:
        for name in arguments.cases:
            rows = list(rows_of(CASES[name], arguments.policies, arguments.quick))
            runs = [workers.submit(play, name, row, seed) for row in rows for seed in seeds]
            played = [run.result() for run in runs]
            show(name, CASES[name].case, played)
            print(f"CPU: {sum(one.cpu_s for one in played):.0f} s", flush=True)


if __name__ == "__main__":
    main()
