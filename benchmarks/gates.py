"""Admission policies against simulated servers with continuous batching, beside the best fixed limit of the same run.

    python benchmarks/gates.py [--scenarios A,F,Y1] [--policies tide,pi,fixed64] [--seeds 3] [--jobs 2] [--oracles FILE]

A line a policy and case tells: goodput of the whole run and of the second half of each phase, in per cent of the best
fixed limit of the phase; seconds, and moves of the limit, until 90 % of it were reached; the highest limit as a
multiple of the knee, the lowest limit that gives 95 % of the best; seconds and moves to 95 % of the new best after a
halving; timeouts in per cent of requests; refusals (429); preemptions. More than 100 % is possible where the server
changes within a phase, since the best is one limit for all of it.

``NAME-blind`` is a policy that does not hear of the server's own figures. The best limit is looked for anew for each
seed, since the requests are those of the seed; what was found is kept in the file given with --oracles. --quick takes
one seed and a short list of cases. --pool runs the same cases behind the real pool, on Trio's virtual clock.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
from gate_cases import CASES, find_cases
from gate_policies import DEFAULT, make_policy
from gate_scores import Best, Oracles, Score, fixed_goodputs, mean_score, score, worst

from scavenge.testing.closed_loop import ClosedLoop
from scavenge.testing.closed_loop_report import LoopReport

QUICK = "A,B,D,E,F,H"
WIDTH = 26
T = TypeVar("T")


@attrs.frozen
class Job:
    """One run."""

    case: str
    policy: str
    seed: int


@attrs.frozen
class Plan:
    """What is run, and how."""

    cases: Sequence[str]
    policies: Sequence[str]
    seeds: Sequence[int]
    jobs: int
    in_pool: bool


def run(job: Job) -> LoopReport:
    """Run a policy on a case."""
    return ClosedLoop(CASES[job.case].loop, make_policy(job.policy), random.Random(job.seed)).run()


def run_in_pool(job: Job) -> LoopReport:
    """The same behind the real pool."""
    from gate_pool import play  # only here: the fleet that it simulates takes long to import

    return play(CASES[job.case].loop, job.policy, job.seed)


def _each(jobs: int, step: Callable[[Job], LoopReport], work: Sequence[Job]) -> Iterator[tuple[Job, LoopReport]]:
    if jobs == 1 or len(work) < 2:
        yield from ((job, step(job)) for job in work)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from zip(work, pool.imap(step, work), strict=True)


def find_bests(plan: Plan, oracles: Oracles) -> None:
    """Run the fixed limits that were not run yet."""
    work = [
        Job(case, f"fixed{limit}", seed)
        for case in plan.cases
        for seed in plan.seeds
        for limit in oracles.missing(CASES[case], seed)
    ]
    for job, report in _each(plan.jobs, run, work):
        case = CASES[job.case]
        oracles.put(case, job.seed, int(job.policy.removeprefix("fixed")), fixed_goodputs(case, report))
    oracles.save()


def compare(plan: Plan, oracles: Oracles) -> dict[str, dict[str, Score]]:
    """Run the policies, print a line for each, and give their scores by policy and case."""
    scores: dict[str, dict[str, Score]] = {policy: {} for policy in plan.policies}
    work = [Job(case, policy, seed) for case in plan.cases for policy in plan.policies for seed in plan.seeds]
    found: list[Score] = []
    print(" " * (WIDTH + 1) + "".join(f"{name:>{width}}" for name, width in COLUMNS))
    for job, report in _each(plan.jobs, run_in_pool if plan.in_pool else run, work):
        bests = oracles.bests(CASES[job.case], job.seed)
        found.append(score(CASES[job.case], bests, report))
        if job.seed != plan.seeds[-1]:
            continue
        if job.policy == plan.policies[0]:
            print(f"\n{job.case}: best {_told(bests)}")
        scores[job.policy][job.case] = mean_score(found)
        print(f"{job.policy:>{WIDTH}} {_line(scores[job.policy][job.case])}", flush=True)
        found = []
    return scores


def _told(bests: Sequence[Best]) -> str:
    return ", then ".join(f"{best.goodput:.0f} tokens/s at {best.limit} (knee {best.knee})" for best in bests)


COLUMNS = (
    ("whole", 6), ("half", 6), ("to 90 %", 9), ("moves", 6), ("peak", 6),
    ("halved", 8), ("moves", 6), ("late%", 6), ("429", 7), ("preempt", 8),
)  # fmt: skip


def _line(one: Score) -> str:
    halved = "" if one.recovered_s is None else f"{one.recovered_s:.0f}"
    half = "" if one.second_half is None else f"{100 * one.second_half:.1f}"
    moves = "" if one.recovered_moves is None else f"{one.recovered_moves:.0f}"
    return (
        f"{100 * one.whole:6.1f}{half:>6}{one.reached_s:9.0f}{one.reached_moves:6.0f}{one.peak:6.1f}"
        f"{halved:>8}{moves:>6}{100 * one.timeouts:6.2f}{one.refused:7.0f}{one.preemptions:8.0f}"
    )


def summarise(title: str, scores: dict[str, dict[str, Score]], cases: Sequence[str]) -> None:
    """Print the means and the worst of each policy."""
    if not cases:
        return
    print(f"\n{title}: mean and worst of {len(cases)}")
    columns = ("whole", "worst", "half", "worst", "to 90 %, worst", "moves", "peak", "halved", "late%")
    print(f"{'':{WIDTH}} " + "".join(f"{column:>15}" for column in columns))
    for policy, by_case in scores.items():
        of = [(name, by_case[name]) for name in cases]
        halves = [(100 * one.second_half, name) for name, one in of if one.second_half is not None] or [(math.nan, "-")]
        halved = [(one.recovered_s, name) for name, one in of if one.recovered_s is not None] or [(math.nan, "-")]
        cells = [
            f"{100 * sum(one.whole for _, one in of) / len(of):.1f}",
            worst(((100 * one.whole, name) for name, one in of), low=True),
            f"{sum(half for half, _ in halves) / len(halves):.1f}",
            worst(halves, low=True),
            worst(((one.reached_s, name) for name, one in of), low=False),
            worst(((one.reached_moves, name) for name, one in of), low=False),
            worst(((one.peak, name) for name, one in of), low=False),
            worst(halved, low=False),
            worst(((100 * one.timeouts, name) for name, one in of), low=False),
        ]
        print(f"{policy:>{WIDTH}} " + "".join(f"{cell:>15}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scenarios", help="keys of cases, such as A,F,Y1; default all")
    parser.add_argument("--policies", default=",".join(DEFAULT), help="default %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="how many, default %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="processes, default %(default)s")
    parser.add_argument("--oracles", type=Path, help="a JSON file with what fixed limits give")
    parser.add_argument("--quick", action="store_true", help=f"one seed, and {QUICK} unless --scenarios says others")
    parser.add_argument("--pool", action="store_true", help="behind the real pool")
    arguments = parser.parse_args()
    began_at = time.perf_counter()
    wanted = arguments.scenarios or (QUICK if arguments.quick else None)
    seeds = range(1, 1 + (1 if arguments.quick else arguments.seeds))
    plan = Plan(list(find_cases(wanted)), _there(arguments.policies.split(",")), seeds, arguments.jobs, arguments.pool)
    oracles = Oracles(arguments.oracles)
    find_bests(plan, oracles)
    scores = compare(plan, oracles)
    groups = {"A to X": "ABCDEFGHIJKLMNOPQRSTUVWX", "Hold-outs": "Y", "First minutes": "Z"}
    for title, letters in groups.items():
        summarise(title, scores, [name for name in plan.cases if name[0] in letters])
    print(f"\n{time.perf_counter() - began_at:.0f} s")


def _there(names: Sequence[str]) -> list[str]:
    there = []
    for name in names:
        try:
            make_policy(name)
        except (ImportError, AttributeError) as exc:
            print(f"{name} is left out: {exc}")
        else:
            there.append(name)
    return there


if __name__ == "__main__":
    main()
