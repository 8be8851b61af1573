"""Servers that die under a gateway, others that come in their place, and the gateway to them as a process of its own.

The story is told by the requests themselves: a server dies in the course of its nth one (:mod:`mortal_server`), and its
death brings the next. So it is the same story however fast the machine is, and whoever asks often enough has seen it.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import attrs

MODEL = "sum"
BOUND_S = 60.0
"""How long a wait may take before the test fails."""
SERVER = Path(__file__).with_name("mortal_server.py")
TOKEN = "the-gateways-own-token"
ENDPOINTS = "endpoints.toml"
GATEWAY = "gateway.toml"
SETTINGS = f"""
endpoints_path = "{ENDPOINTS}"
elastic = true
elastic_poll_interval = 0.1
health = {{ interval = 0.1, backoff_max = 0.5 }}

[gateway]
port = 0
token_var = "GATEWAY_TOKEN"
max_retries = 20
"""

ROW = f'[[endpoint]]\nendpoint_id = "pool"\nmodel = "{MODEL}"\nurl = "{{url}}"\nmax_concurrent = {{max_concurrent}}\n'

MORTALS = (
    ("ok", "ok", "503", "ok", "die-midway"),
    ("ok", "cut", "ok", "ok", "die-begun"),
    ("ok", "ok", "reset", "ok", "die-midway"),
    ("ok", "500", "ok", "ok", "die"),
    ("ok", "ok", "abort", "ok", "die-midway"),
    ("ok", "ok", "ok", "ok", "die-midway"),
)
"""What goes wrong, they do wrong in the course of their lives."""
UNHEARD = (("ok", "503", "ok", "ok", "die-begun"), ("ok", "ok", "500", "ok", "die")) * 3
"""The same before an answer's first word. They serve one request at a time, or a death would cut other streams off."""
AT_ONCE = 3


@attrs.define(eq=False)
class Fleet:
    """Three servers at once while any of the ``mortals`` is left, then the ``others``, who are well; and their listing.

    The one that died last stays listed, as it does where a listing is behind the times. The others come only when all
    of the mortals are dead: a client that asks for more than those can answer has seen all that goes wrong with them.
    """

    folder: Path
    mortals: Sequence[Sequence[str]] = MORTALS
    others: Sequence[Sequence[str]] = (("ok",), ("ok",))
    max_concurrent: int = 8
    deaths: int = 0
    _waiting: deque[Sequence[str]] = attrs.field(factory=deque)
    _urls: dict[subprocess.Popen[str], str] = attrs.field(factory=dict)
    """Where the listed servers are."""
    _dead: subprocess.Popen[str] | None = None
    """The one that died last."""
    _processes: list[subprocess.Popen[str]] = attrs.field(factory=list)
    _over: bool = False
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __enter__(self) -> Fleet:
        self._waiting.extend(self.mortals)
        with self._lock:
            for _ in range(min(AT_ONCE, len(self.mortals))):
                self._start(self._waiting.popleft())
            if not self.mortals:
                self._start_others()
            self._list()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
        for process in self._processes:
            process.kill()
            process.communicate()

    def _start(self, words: Sequence[str]) -> None:
        run = [sys.executable, "-I", "-S", str(SERVER), *words]
        process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        self._urls[process] = f"http://127.0.0.1:{int(first_line(process))}/v1"
        threading.Thread(target=self._mourn, args=(process,), daemon=True).start()

    def _start_others(self) -> None:
        for words in self.others:
            self._start(words)

    def _mourn(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        with self._lock:
            if self._over:
                return
            self.deaths += 1
            if self._dead is not None:
                del self._urls[self._dead]
            self._dead = process
            if self._waiting:
                self._start(self._waiting.popleft())
            elif self.deaths == len(self.mortals):
                self._start_others()
            self._list()

    def tell(self) -> None:
        """Let every server that lives go on with the reply that waits to be told."""
        for process in self._processes:
            if process.poll() is None:
                open_direct(f"{self._urls[process]}/go-on")

    def _list(self) -> None:
        rows = [ROW.format(url=url, max_concurrent=self.max_concurrent) for url in self._urls.values()]
        beside = self.folder / "endpoints.new"
        beside.write_text("\n".join(rows))
        beside.replace(self.folder / ENDPOINTS)

    @property
    def troubles(self) -> int:
        """How often something goes wrong with the mortals, their deaths included."""
        return sum(word != "ok" for words in self.mortals for word in words)

    @property
    def most_answers(self) -> int:
        """How many requests all the mortals can answer."""
        return sum(word == "ok" for words in self.mortals for word in words)


def first_line(process: subprocess.Popen[str]) -> str:
    """What a program says first; empty when it ends without a word."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], BOUND_S)[0], f"{process.args} says nothing"
    return process.stdout.readline().strip()


def open_direct(url: str, **headers: str) -> str:
    """A page, asked for past all proxies."""
    with build_opener(ProxyHandler({})).open(Request(url, headers=headers), timeout=BOUND_S) as reply:
        return reply.read().decode()


# --- the gateway


@attrs.frozen
class Gateway:
    """A gateway in operation."""

    base_url: str

    def figures(self) -> Counter[str]:
        """What it counted: ``answered`` and ``failed`` calls of clients, requests that were sent ``again``."""
        page = open_direct(f"{self.base_url.removesuffix('/v1')}/metrics", Authorization=f"Bearer {TOKEN}")
        found: Counter[str] = Counter()
        for name, labels, value in re.findall(r"^(\w+)\{(.*?)\} (\S+)$", page, re.MULTILINE):
            if name == "scavenge_calls_total":
                found["answered" if 'outcome="ok"' in labels else "failed"] += int(float(value))
            elif name == "scavenge_resends_total":
                found["again"] += int(float(value))
        return found


@contextmanager
def serving(folder: Path) -> Iterator[Gateway]:
    """Serve what *folder* lists; a gateway that ends badly, or says that it has a bug, fails the test."""
    (folder / GATEWAY).write_text(SETTINGS)
    with (folder / "told.txt").open("w+") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "scavenge", "serve", GATEWAY],
            cwd=folder,
            env={**os.environ, "GATEWAY_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
        try:
            base_url = first_line(process)
            assert base_url, (folder / "told.txt").read_text()
            yield Gateway(base_url)
            process.terminate()
            assert process.wait(BOUND_S) == 0, (folder / "told.txt").read_text()
        finally:
            process.kill()
            process.communicate()
    assert "Traceback" not in (folder / "told.txt").read_text()


def run_beside(folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command in *folder* to its end, which is a good one: all that it said."""
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=2 * BOUND_S)
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    return said


def executed(folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> tuple[str, Counter[str]]:
    """Run a command to its end by ``scavenge exec``: all that was said, and what the gateway counted."""
    (folder / GATEWAY).write_text(SETTINGS)
    run = [sys.executable, "-m", "scavenge", "exec", GATEWAY, "--log-level", "info", "--", *command]
    said = run_beside(folder, run, {**environ, "GATEWAY_TOKEN": TOKEN})
    found = re.findall(r"(\d+) calls: (\d+) answered(?:; (\d+) requests were sent again)?$", said, re.MULTILINE)
    assert len(found) == 1, said
    calls, answered, again = (int(number or 0) for number in found[0])
    return said, Counter(answered=answered, failed=calls - answered, again=again)


# --- what clients ask


def questions(fleet: Fleet, more: int = 10) -> list[tuple[str, str]]:
    """As many as it takes to see all of the fleet's story, with the model's answers."""
    count = fleet.most_answers + more
    return [(f"What is {number} + {number + 1}?", f"The answer is {2 * number + 1}") for number in range(1, count + 1)]


def write_lines(path: Path, asked: Sequence[tuple[str, str]]) -> None:
    """Write questions and answers as lines of JSON."""
    path.write_text("".join(json.dumps({"input": text, "target": answer}) + "\n" for text, answer in asked))
