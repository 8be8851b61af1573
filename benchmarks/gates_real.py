"""What an admission policy gets out of a real server, beside fixed limits in the same run.

``python benchmarks/gates_real.py URL MODEL [--seconds 60] [--limits 1,2,4,8,12,16,32] [--policies tide] [--rounds 1]``
keeps a closed loop of requests going against one running server, limit after limit, round after round, and prints for
each the tokens a second over the whole time and over its second half, the mean and the last limit, and the part of the
best fixed limit. The order of the limits turns from round to round, so that a machine that slows down is fair to all.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Sequence

import attrs
import trio

import scavenge
from scavenge.events import AttemptEnded, Event, LimitMoved
from scavenge.plugin import EndpointSpec, Listing


@attrs.define
class Trial:
    """One policy against the server for some time: when how many tokens came, and the moves of the limit."""

    seconds: float
    started_at: float = attrs.field(factory=trio.current_time)
    tokens: list[tuple[float, int]] = attrs.field(factory=list)
    limits: list[tuple[float, int]] = attrs.field(factory=list)
    reasons: list[str] = attrs.field(factory=list)
    failed: int = 0

    def observe(self, event: Event) -> None:
        now = trio.current_time() - self.started_at
        if isinstance(event, AttemptEnded):
            self.tokens.append((now, event.tokens))
            self.failed += event.attempt.outcome != "ok"
        elif isinstance(event, LimitMoved):
            self.limits.append((now, event.new))
            self.reasons.append(event.reason)

    def rate(self, since: float) -> float:
        """Tokens a second of the replies that ended in the rest of the trial."""
        return sum(count for at, count in self.tokens if since <= at <= self.seconds) / (self.seconds - since)


async def work(pool: scavenge.ModelPool, tokens: int, chance: random.Random) -> None:
    while True:
        length = max(4, min(4 * tokens, round(tokens * math.exp(chance.gauss(-0.18, 0.6)))))
        words = " ".join(chance.choice(["red", "blue", "old", "new", "tree", "house"]) for _ in range(40))
        await pool.chat(
            [{"role": "user", "content": f"Tell a long story with these words: {words}"}],
            max_tokens=length,
            ignore_eos=True,
            temperature=0.9,
        )


@attrs.frozen
class OneServer:
    """Lists the one server there is."""

    url: str
    model: str
    type: str | None

    async def list_endpoints(self) -> Listing:
        return Listing([EndpointSpec(endpoint_id="p", model=self.model, url=self.url, type=self.type)])


async def try_policy(args: argparse.Namespace, admission: dict[str, object], seed: int) -> Trial:
    trial = Trial(args.seconds)
    async with (
        scavenge.open_pool(
            OneServer(args.url, args.model, args.type), admission=admission, observers=[trial.observe]
        ) as pool,
        trio.open_nursery() as nursery,
    ):
        for number in range(args.streams):
            nursery.start_soon(work, pool, args.tokens, random.Random(f"{seed} {number}"))
        await trio.sleep(args.seconds)
        trial.limits.append((args.seconds, pool.status().endpoints[0].limit))
        nursery.cancel_scope.cancel()
    return trial


def table(trials: dict[str, list[Trial]], fixed: Sequence[str]) -> None:
    half = {name: statistics.mean(one.rate(one.seconds / 2) for one in ones) for name, ones in trials.items()}
    whole = {name: statistics.mean(one.rate(0.0) for one in ones) for name, ones in trials.items()}
    best_half, best_whole = max(half[name] for name in fixed), max(whole[name] for name in fixed)
    print(f"{'policy':12} {'tok/s':>8} {'%':>5} {'2nd half':>9} {'%':>5} {'limit':>6} {'failed':>6}  moves")
    for name, ones in trials.items():
        moves = " ".join(f"{limit}{reason[0] if reason else ''}" for (_, limit), reason in
                         zip(ones[-1].limits, ones[-1].reasons, strict=False))  # fmt: skip
        print(
            f"{name:12} {whole[name]:8.1f} {100 * whole[name] / best_whole:5.0f} {half[name]:9.1f}"
            f" {100 * half[name] / best_half:5.0f} {ones[-1].limits[-1][1]:6d} {sum(one.failed for one in ones):6d}"
            f"  {moves[:80]}"
        )


async def main(args: argparse.Namespace) -> None:
    fixed = [f"fixed {limit}" for limit in args.limits.split(",")]
    names = [*fixed, *args.policies.split(",")]
    trials: dict[str, list[Trial]] = {name: [] for name in names}
    for turn in range(args.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            policy, _, limit = name.partition(" ")
            admission: dict[str, object] = {"policy": policy, **({"limit": int(limit)} if limit else {})}
            trials[name].append(await try_policy(args, admission, turn))
            print(f"  {name}: {trials[name][-1].rate(0.0):.1f} tokens/s", file=sys.stderr)
    table(trials, fixed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limits", default="1,2,4,8,12,16,32")
    parser.add_argument("--policies", default="tide")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--type", help="openai_completions for a model whose replies no chat template can read")
    parser.add_argument("--tokens", type=int, default=64, help="mean length of a reply")
    trio.run(main, parser.parse_args())
