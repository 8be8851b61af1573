"""What ``scavenge serve`` costs and delays, beside LiteLLM's proxy and beside no proxy at all.

The same canned servers are asked directly, through the gateway and through LiteLLM, in turns, in one run::

    python -m venv VENV && VENV/bin/pip install 'litellm[proxy]' httptools
    python benchmarks/gateway.py --litellm VENV/bin/litellm

Prints CPU time of the proxy's processes (user and system) a request and a relayed chunk, requests a second at
saturation, what the proxy adds to the time of a request and to the way of a chunk, and its memory; then the ratios.
Goals: at most a fifth of LiteLLM's CPU time a request, at most 5 ms added at 64 streams (p99), at most 15 µs a relayed
chunk in bursts. A run takes about ten minutes; on a machine that does other things only the ratios mean much. At a low
rate a request costs more than at saturation, whatever serves it, since the processor's caches are cold each time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import tempfile
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TypeAlias

from gateway_fleet import asking
from gateway_load import Seen, at_rate, saturate
from gateway_proxies import Proxy, fleet, litellm, scavenge

SERVERS = 4
RATE = 32.0
"""Requests a second where latency is measured; LiteLLM can bear little more on one core."""
STREAMS = (64, 512)
BURST_CONNECTIONS = 8
CHUNKS = 200
PACE_S = 0.1

Load: TypeAlias = Callable[[list[int], Callable[[], object]], Coroutine[None, None, Seen]]


@dataclass
class Way:
    """One way to the servers, and what was measured on it: a list of rounds for each load."""

    name: str
    ports: list[int]
    proxy: Proxy | None = None
    start_mb: float = 0.0
    seen: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def measure(self, load: str, ask: Load) -> None:
        read: list[float] = []
        warmed = partial(self._read_cpu, read)
        seen = asyncio.run(ask(self.ports, warmed))
        warmed()
        self.cpu_s[load].append(read[1] - read[0])
        self.seen[load].append(seen)

    def _read_cpu(self, read: list[float]) -> None:
        read.append(self.proxy.cpu_s() if self.proxy else 0.0)

    def cpu_us(self, load: str, pieces: int = 1) -> float:
        """CPU microseconds a request, or a piece of one."""
        rounds = zip(self.cpu_s[load], self.seen[load], strict=True)
        return median(cpu_s / seen.requests for cpu_s, seen in rounds) / pieces * 1e6

    def rate(self, load: str) -> float:
        return median(seen.rate for seen in self.seen[load])

    def took_ms(self, load: str) -> tuple[float, float]:
        """p50 and p99 of how long requests took, or of the delays of chunks."""
        times = [time_s for seen in self.seen[load] for time_s in (seen.delays_s or seen.took_s)]
        hundredths = quantiles(times, n=100)
        return hundredths[49] * 1000, hundredths[98] * 1000


def loads(seconds: float) -> dict[str, Load]:
    """What is done in each round, by name."""
    plain, burst = asking(), asking(stream=True, chunks=CHUNKS)
    found: dict[str, Load] = {
        "plain": partial(saturate, body=plain, connections=STREAMS[0], seconds=seconds),
        "burst": partial(saturate, body=burst, connections=BURST_CONNECTIONS, seconds=seconds),
    }
    for streams in STREAMS:
        held = asking(hold_s=streams / RATE)
        found[f"held {streams}"] = partial(at_rate, body=held, rate=RATE, requests=int(RATE * seconds), warm=streams)
    paced = asking("paced", hold_s=PACE_S, chunks=CHUNKS, stream=True)
    found["paced"] = partial(at_rate, body=paced, rate=RATE, requests=STREAMS[0], warm=STREAMS[0])
    return found


def measure(ways: list[Way], seconds: float, rounds: int) -> None:
    """Have all ways take turns, load by load."""
    for way in ways:
        asyncio.run(saturate(way.ports, body=asking(), connections=BURST_CONNECTIONS, seconds=1.0))
        way.start_mb = way.proxy.peak_mb() if way.proxy else 0.0
    for _ in range(rounds):
        for load, ask in loads(seconds).items():
            for way in ways:
                gc.collect()
                way.measure(load, ask)


def report(ways: list[Way]) -> None:
    direct, *proxies = ways
    print(f"{'CPU':22} {'µs a request at':>26} {'':>10} {'µs a chunk':>16} {'MB':>12}")
    print(f"{'':22} {'saturation':>11}", end="")
    print(
        "".join(f"{streams:>8}" for streams in STREAMS) + f" {'requests/s':>11} {'burst':>8} {'paced':>7} start  peak"
    )
    print(f"{direct.name:22} {'-':>11}{'-':>8}{'-':>8} {direct.rate('plain'):11.0f} {'-':>8} {'-':>7}")
    for way in proxies:
        held = "".join(f"{way.cpu_us(f'held {streams}'):8.0f}" for streams in STREAMS)
        chunks = f"{way.cpu_us('burst', CHUNKS):8.1f} {way.cpu_us('paced', CHUNKS):7.1f}"
        print(f"{way.name:22} {way.cpu_us('plain'):11.0f}{held} {way.rate('plain'):11.0f} {chunks}", end="")
        print(f" {way.start_mb:5.0f} {way.proxy.peak_mb() if way.proxy else 0:5.0f}")
    print(f"\n{'added, ms (p50 | p99)':22}", end="")
    print("".join(f"{f'a request, {streams}':>21}" for streams in STREAMS) + f"{f'a chunk, {STREAMS[0]}':>21}")
    for way in proxies:
        print(f"{way.name:22}" + "".join(f"{added(way, direct, load):>21}" for load in delayed()))
    print(f"{'(direct, in all)':22}" + "".join(f"{told(*direct.took_ms(load)):>21}" for load in delayed()) + "\n")


def delayed() -> list[str]:
    return [*(f"held {streams}" for streams in STREAMS), "paced"]


def added(way: Way, direct: Way, load: str) -> str:
    return told(*(here - there for here, there in zip(way.took_ms(load), direct.took_ms(load), strict=True)))


def told(p50_ms: float, p99_ms: float) -> str:
    return f"{p50_ms:.2f} | {p99_ms:.2f}"


def compare(ours: Way, theirs: Way) -> str:
    loads_told = (*(f"held {streams}" for streams in STREAMS), "plain", "burst", "paced")
    ratios = [f"{load} 1/{theirs.cpu_us(load) / ours.cpu_us(load):.0f}" for load in loads_told]
    times = f"{ours.rate('plain') / theirs.rate('plain'):.1f} times"
    return f"{ours.name} to {theirs.name}: CPU {', '.join(ratios)}; requests/s {times}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--litellm", type=Path, help="the command litellm of its venv; without it only ours is measured"
    )
    options.add_argument(
        "--litellm-provider", default="hosted_vllm", help="LiteLLM's name for such servers; or: openai"
    )
    options.add_argument("--litellm-option", action="append", default=[], help="as in --litellm-option=--run_granian")
    options.add_argument("--seconds", type=float, default=8.0, help="for each load, each way and each round")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as open_ones:
        folder = Path(open_ones.enter_context(tempfile.TemporaryDirectory()))
        ports = open_ones.enter_context(fleet(SERVERS))
        proxies = [
            open_ones.enter_context(scavenge("scavenge", folder, ports, stream=False)),
            open_ones.enter_context(scavenge("scavenge, stream=true", folder, ports, stream=True)),
        ]
        if given.litellm:
            theirs = litellm(given.litellm, folder, ports, given.litellm_option, given.litellm_provider)
            proxies.append(open_ones.enter_context(theirs))
        ways = [Way("direct", ports), *(Way(proxy.name, [proxy.port], proxy) for proxy in proxies)]
        measure(ways, given.seconds, given.rounds)
        report(ways)
        for ours in ways[1:3] if given.litellm else ():
            print(compare(ours, ways[3]))


if __name__ == "__main__":
    main()
