"""A run of ``scavenge`` on servers to which things happen, and what it has written so far.

The evaluation goes on until the story has been told: its environment has examples without end, and after
:meth:`Story.finish` those that were read ahead have nothing to ask. So nothing depends on how fast the servers are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from hosts import LEASH, Network

BOUND_S = 60.0
"""How long a wait may take before the test fails."""
STREAMS = 2
"""Requests in flight on each server."""
IDLE_TIMEOUT_S = 3
OUTAGE_S = 12
"""How long a lost network stays lost once that is known: longer than a probe or a connection may take."""

ENVIRONMENT = """
import itertools
import pathlib

import scavenge

OVER = pathlib.Path(__file__).with_name("over")


class Talk(scavenge.Environment):
    multi_turn = False

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def examples(self):
        for number in itertools.count():
            if OVER.exists():
                return
            yield scavenge.Example(id=str(number), data={})

    async def play(self, example, model):
        if OVER.exists():
            return scavenge.Rollout(completion=None, reward=None)
        asked = [{"role": "user", "content": f"Tell me about the number {example.id}."}]
        reply = await model.chat(asked, max_tokens=self.tokens)
        return scavenge.Rollout(completion=reply.text, reward=None)
"""
EVALUATION = """
elastic = true
elastic_poll_interval = 0.5
endpoints_path = "endpoints.toml"
order = {{ by = "file" }}
health = {{ interval = 1, backoff_max = 2 }}

[[eval]]
env_id = "talk:Talk"
env_args = {{ tokens = {tokens} }}
endpoint_id = "real"
max_retries = 0
idle_timeout = {idle_timeout}
sampling_args = {{ temperature = 0, ignore_eos = true }}
"""
ROW = '[[endpoint]]\nendpoint_id = "real"\nmodel = "{model}"\nurl = "{url}"\nmax_concurrent = {streams}\n'


@attrs.frozen
class Attempt:
    """One attempt as the results tell it; it started at an instant in epoch seconds."""

    url: str
    outcome: str
    started_at: float


@attrs.define(eq=False)
class Story:
    """A run under way. ``check`` is called while waiting, and raises when the servers are not as they should be."""

    folder: Path
    urls: Sequence[str]
    process: subprocess.Popen[bytes]
    check: Callable[[], None]

    def wait(self, what: str, reached: Callable[[], bool]) -> float:
        """Wait until something is so; the instant, in epoch seconds."""
        give_up_at = time.monotonic() + BOUND_S
        while not reached():
            self.check()
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < give_up_at, f"waited in vain: {what}\n{self.events_text()}"
            time.sleep(0.05)
        return time.time()

    def wait_served(self, *urls: str, since: float = 0.0, times: int = 2) -> float:
        """Wait until each of the servers has answered so many requests that were sent after an instant."""

        def served() -> bool:
            counts = Counter(a.url for a in self.attempts() if a.outcome == "ok" and a.started_at >= since)
            return all(counts[url] >= times for url in urls)

        return self.wait(f"answers of {', '.join(urls)}", served)

    def finish(self) -> None:
        """Let the run come to its end, which is a good one, with every example answered once."""
        self.folder.joinpath("over").touch()
        assert self.process.wait(BOUND_S) == 0, self.told()
        results = self.results()
        assert sorted(int(result["example_id"]) for result in results) == list(range(len(results)))
        assert {result["status"] for result in results} == {"ok"}
        for chain in filter(None, self.chains()):
            assert [attempt.outcome for attempt in chain] == ["lost"] * (len(chain) - 1) + ["ok"]

    def told(self) -> str:
        """What the run has said so far."""
        return self.folder.joinpath("told.txt").read_text(encoding="utf-8")

    def results(self) -> list[dict[str, Any]]:
        """The whole lines in the results so far."""
        return self._lines("results.jsonl")

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The events of these names so far."""
        return [event for event in self._lines("events.jsonl") if event["event"] in names]

    def events_text(self) -> str:
        """What happened to the endpoints so far."""
        names = ("HealthChanged", "LeasesRevoked", "PoolWaiting", "NetworkLost", "NetworkBack", "Warned")
        return "\n".join(json.dumps(event) for event in self.events(*names))

    def chains(self) -> list[list[Attempt]]:
        """The attempts of each example so far."""
        return [[_attempt(one) for one in result["attempts"]] for result in self.results()]

    def attempts(self) -> list[Attempt]:
        """All attempts so far."""
        return [attempt for chain in self.chains() for attempt in chain]

    def moved(self, url: str) -> list[list[Attempt]]:
        """The attempts of the examples that a server lost."""
        return [chain for chain in self.chains() if any(one.url == url and one.outcome == "lost" for one in chain)]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        lines = [line for path in self.folder.glob(f"runs/*/{name}") for line in path.read_bytes().split(b"\n")[:-1]]
        return [json.loads(line) for line in lines]


def _attempt(told: dict[str, Any]) -> Attempt:
    return Attempt(told["endpoint"], told["outcome"], datetime.fromisoformat(told["started"]).timestamp())


@contextmanager
def open_story(
    folder: Path, urls: Sequence[str], model: str, tokens: int, prefix: Sequence[str], check: Callable[[], None]
) -> Iterator[Story]:
    """Start a run whose rollouts take that many tokens; it is killed if it still runs at the end of the block."""
    (folder / "talk.py").write_text(ENVIRONMENT, encoding="utf-8")
    evaluation = EVALUATION.format(tokens=tokens, idle_timeout=IDLE_TIMEOUT_S)
    (folder / "eval.toml").write_text(evaluation, encoding="utf-8")
    rows = [ROW.format(model=model, url=url, streams=STREAMS) for url in urls]
    (folder / "endpoints.toml").write_text("\n".join(rows), encoding="utf-8")
    run = [sys.executable, "-m", "scavenge", "run", "eval.toml", "--no-progress"]
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(
            [*prefix, sys.executable, str(LEASH), *run],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
    try:
        yield Story(folder, urls, process, check)
    finally:
        process.communicate()


def assert_redone(story: Story, lost: Sequence[str], by: Sequence[str]) -> None:
    """See that what servers lost was answered by others."""
    for url in lost:
        chains = story.moved(url)
        assert chains
        for chain in chains:
            assert {attempt.url for attempt in chain[:-1]} <= set(lost)
            assert chain[-1].url in by


def lose_network(network: Network, story: Story) -> None:
    """Let the packets of every host vanish for a while that is longer than any probe takes, and be heard again."""
    for host in network.hosts:
        host.vanish()
    lost_at = story.wait("the network's loss to be told", lambda: bool(story.events("NetworkLost")))
    story.wait("the outage to last", lambda: time.time() > lost_at + OUTAGE_S)
    for host in network.hosts:
        host.appear()
    story.wait("the network's return to be told", lambda: bool(story.events("NetworkBack")))
    story.wait_served(*story.urls, since=lost_at)


def assert_nobody_blamed(story: Story) -> None:
    """See that a network that was lost was told once, kept all work back, and was blamed on no endpoint."""
    lost, back = story.events("NetworkLost", "NetworkBack")
    assert (lost["event"], back["event"]) == ("NetworkLost", "NetworkBack")
    lost_at, back_at = (datetime.fromisoformat(event["time"]).timestamp() for event in (lost, back))
    assert not [event for event in story.events("HealthChanged") if event["new"] == "ejected"]
    assert any(len(chain) > 1 for chain in story.chains())
    assert not [attempt for attempt in story.attempts() if lost_at < attempt.started_at < back_at]
