"""The servers, the requests and the cases of benchmarks/gates.py.

A to X are those of the study that the gates come from; policies may have been made with them in view. The Y ones are
there to be surprised by: nothing is tuned on them. The Z ones are small servers on a CPU in their first minute, new to
the pool: there the way up is what counts.
"""

from __future__ import annotations

from itertools import pairwise

import attrs

from scavenge.testing.agents import Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop_case import Change, LoopCase, RequestKind, Tells, Workload

GRID = (
    1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    384, 448, 512, 640, 768, 1024,
)  # fmt: skip
"""The fixed limits among which the best is looked for."""

# --- servers

H100 = BatchingSettings()
H100_1024 = attrs.evolve(H100, slots=1024)
A10G = BatchingSettings(0.0317, 240e-6, 0.12e-6, 6e-9, 0.003, 2e-5, 77_000, 256, 2048)
TP8_70B = BatchingSettings(0.0105, 35e-6, 0.015e-6, 1.2e-9, 0.003, 15e-6, 1_500_000, 1024, 8192)
MOE = BatchingSettings(0.0035, 9e-6, 0.03e-6, 0.5e-9, 0.002, 15e-6, 900_000, 512, 8192)
LLAMA_CPU = BatchingSettings(0.05, 0.011, 1.2e-6, 0.0, 0.003, 2e-4, 65_536, 8, 512)
LLAMA_GPU = BatchingSettings(0.012, 0.15e-3, 0.1e-6, 0.0, 0.002, 1e-4, 32_768, 4, 512)
L40S = BatchingSettings(0.022, 95e-6, 0.16e-6, 3e-9, 0.002, 18e-6, 150_000, 192, 4096)
TP8_405B = BatchingSettings(0.034, 160e-6, 0.03e-6, 4e-9, 0.004, 15e-6, 700_000, 512, 4096)
TINY = BatchingSettings(0.0012, 3e-6, 0.01e-6, 0.2e-9, 0.0025, 12e-6, 1_200_000, 512, 16_384)
VLLM_CPU = BatchingSettings(0.009, 0.3e-3, 0.01e-6, 0.0, 0.002, 1e-4, 2_097_152, 16, 2048, noise=0.1)
SMALL_CPU = BatchingSettings(0.11, 0.02, 1e-6, 0.0, 0.003, 2e-4, 32_768, 8, 512, noise=0.1)
LAPTOP = BatchingSettings(0.045, 1.5e-3, 0.6e-6, 20e-9, 0.004, 3e-4, 48_000, 6, 1024, noise=0.1)


def _workload(prompt: float, prompt_cv: float, output: float, output_cv: float, most: int = 16_384) -> Workload:
    return Workload((RequestKind(Spread(prompt, prompt_cv), Spread(output, output_cv), most),))


def _mixed(*parts: tuple[float, Workload]) -> Workload:
    return Workload(tuple(attrs.evolve(part.kinds[0], share=share) for share, part in parts))


CHAT = _workload(600, 0.6, 400, 1.0, 4096)
REASONING = _workload(300, 0.5, 4000, 0.8)
LONG_PROMPTS = _workload(6000, 0.4, 150, 0.6, 1024)
MCQ = _workload(1500, 0.3, 3, 0.3, 8)
HALF_CHAT = _workload(1000, 0.5, 500, 0.8, 3000)
TASTED = _mixed((0.8, _workload(400, 0.5, 50, 0.5)), (0.2, _workload(400, 0.5, 3000, 0.6, 12_000)))


@attrs.frozen
class Case:
    """A loop, its phases, and between which fixed limits the best one lies."""

    loop: LoopCase
    limits: tuple[int, int]
    phases: tuple[tuple[float, float], ...] = ()
    """From when until when each phase lasts; none: all of it is one. Each has its own best limit."""
    halved: int | None = None
    """The phase that begins with a server that has half of what it had."""
    varies: bool = False
    """The one phase is not the same all along, so that the best limit is taken over all of it."""

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """The phases."""
        return self.phases or ((0.0, self.loop.seconds),)

    @property
    def grid(self) -> tuple[int, ...]:
        """The fixed limits to try."""
        return tuple(limit for limit in GRID if self.limits[0] <= limit <= self.limits[1])


def _two(at: float, seconds: float) -> tuple[tuple[float, float], ...]:
    return ((0.0, at), (at, seconds))


_FLAPPING = tuple(Change(180.0 * i, speed=0.5 if i % 2 else 1.0) for i in range(1, 13))
_PREEMPTIBLE = (
    Change(400, down_s=40), Change(900, speed=1 / 1.7, kv=0.6),
    Change(1300, down_s=25), Change(1500, speed=1.0, kv=1.0),
)  # fmt: skip
_TENANTS = tuple(
    Change(at, speed=speed)
    for at, speed in ((230, 0.8), (410, 0.55), (700, 0.4), (880, 0.7), (1100, 0.9), (1330, 0.5), (1500, 1.0))
)
_LETTERS = _workload(900, 0.8, 60, 0.7, 400)
_ESSAYS = _workload(250, 0.6, 1800, 0.5, 6000)
_BOOKS = _workload(9000, 0.5, 220, 0.8, 1000)
_DOOR = 96
_SHORT = _workload(70, 0.2, 64, 0.6, 256)
_BUSY_NEIGHBOUR = tuple(
    Change(2.5 * i, speed=speed)
    for i, speed in enumerate((1.0, 0.6, 1.0, 0.4, 0.9, 1.0, 0.5, 0.7, 1.0, 1.0, 0.4, 0.8) * 2)
)
_FIRST = attrs.evolve(LoopCase(VLLM_CPU, _SHORT, 60), opens_slowly=True, sample_s=1.0)

CASES = {
    "A chat": Case(LoopCase(H100, CHAT, 1200), (96, 384)),
    "B reasoning": Case(LoopCase(H100, REASONING, 2400), (64, 256)),
    "C long prompts": Case(LoopCase(H100, LONG_PROMPTS, 900), (24, 128)),
    "D multiple choice": Case(LoopCase(H100_1024, MCQ, 600), (3, 64)),
    "E llama.cpp, CPU": Case(
        LoopCase(LLAMA_CPU, _workload(200, 0.5, 150, 0.6, 512), 3600, tells=Tells.LLAMA_CPP), (3, 16)
    ),
    "F chat, halved": Case(
        LoopCase(H100, CHAT, 1500, (Change(600, speed=0.5, kv=0.5),)), (64, 384), _two(600, 1500), halved=1
    ),
    "G chat, outage": Case(
        LoopCase(H100, CHAT, 1200, (Change(500, down_s=60),)), (96, 384), ((0, 500), (560, 1200))
    ),
    "H chat, 429 above 96": Case(LoopCase(attrs.evolve(H100, max_in_flight=_DOOR), CHAT, 1200), (64, 128)),
    "I chat, then reasoning": Case(
        LoopCase(H100, CHAT, 2400, (Change(600, workload=REASONING),)), (64, 384), _two(600, 2400)
    ),
    "J chat, 2 % of 5xx": Case(LoopCase(H100, CHAT, 1200, error_rate=0.02), (96, 384)),
    "K chat, doubled": Case(
        LoopCase(H100, CHAT, 1500, (Change(0, speed=0.5, kv=0.5), Change(600, speed=1.0, kv=1.0))),
        (64, 384), _two(600, 1500),
    ),
    "L A10G": Case(LoopCase(A10G, HALF_CHAT, 1800), (24, 192)),
    "M 70B, reasoning": Case(LoopCase(TP8_70B, _workload(300, 0.5, 6000, 0.8, 20_000), 3600), (64, 512)),
    "N llama.cpp, GPU": Case(
        LoopCase(LLAMA_GPU, _workload(300, 0.5, 250, 0.7, 1024), 900, tells=Tells.LLAMA_CPP), (1, 12)
    ),
    "O 50 or 3000": Case(LoopCase(H100, TASTED, 1800), (64, 320)),
    "P chat, flapping": Case(LoopCase(H100, CHAT, 2160, _FLAPPING), (96, 384), varies=True),
    "Q chat in one piece": Case(LoopCase(H100, CHAT, 1200, streamed=False), (96, 384)),
    "R reasoning in one piece": Case(LoopCase(H100, REASONING, 2400, streamed=False), (64, 256)),
    "S 70B, chat": Case(LoopCase(TP8_70B, CHAT, 1500), (160, 1024)),
    "T A10G, 429 above 40": Case(LoopCase(attrs.evolve(A10G, max_in_flight=40), HALF_CHAT, 1800), (24, 56)),
    "U MoE": Case(LoopCase(MOE, _workload(800, 0.8, 1500, 1.0, 8000), 1800), (128, 640)),
    "V llama.cpp, long": Case(
        LoopCase(LLAMA_CPU, _workload(150, 0.5, 600, 0.8, 2048), 7200, tells=Tells.LLAMA_CPP), (3, 16)
    ),
    "W preemptible, 5 % of 5xx": Case(
        LoopCase(H100, _workload(2500, 0.7, 700, 0.9, 4096), 2000, _PREEMPTIBLE, error_rate=0.05),
        (48, 320), varies=True,
    ),
    "X 20k prompts": Case(LoopCase(H100, _workload(20_000, 0.4, 300, 0.6, 1500), 1500), (6, 48)),
    "Y1 L40S, pages and essays": Case(
        LoopCase(L40S, _mixed((0.55, _workload(4000, 0.7, 200, 0.6, 800)), (0.45, _ESSAYS)), 1800), (12, 160)
    ),
    "Y2 405B, thinking": Case(
        LoopCase(TP8_405B, _workload(700, 0.6, 2200, 1.2, 12_000), 3600, request_timeout_s=1800.0), (48, 512)
    ),
    "Y3 tiny, 429 above 300": Case(
        LoopCase(attrs.evolve(TINY, max_in_flight=300), _LETTERS, 600, (Change(300, speed=0.35),)),
        (24, 384), _two(300, 600),
    ),
    "Y4 laptop, fewer slots": Case(
        LoopCase(
            LAPTOP, _workload(350, 0.8, 280, 0.8, 1500), 3600, (Change(1800, slots=3),), tells=Tells.LLAMA_CPP
        ),
        (1, 12), _two(1800, 3600), halved=1,
    ),
    "Y5 shared with others": Case(
        LoopCase(attrs.evolve(H100, noise=0.15), CHAT, 1700, _TENANTS, tells=Tells.NOTHING), (96, 384), varies=True
    ),
    "Y6 A10G, ever another": Case(
        LoopCase(
            A10G, _LETTERS, 2400,
            (
                Change(600, workload=_BOOKS), Change(1200, workload=_ESSAYS),
                Change(1700, down_s=20), Change(1900, kv=0.5),
            ),
            error_rate=0.03,
        ),
        (6, 192), ((0, 600), (600, 1200), (1200, 1700), (1900, 2400)), halved=3,
    ),
    "Z1 vLLM, CPU": Case(_FIRST, (6, 40)),
    "Z2 vLLM, CPU, busy neighbour": Case(attrs.evolve(_FIRST, changes=_BUSY_NEIGHBOUR), (6, 40), varies=True),
    "Z3 llama.cpp, small CPU": Case(
        attrs.evolve(_FIRST, server=SMALL_CPU, seconds=300, tells=Tells.LLAMA_CPP), (3, 20)
    ),
}  # fmt: skip
"""The cases by name; the part before the space is what ``--scenarios`` takes."""

assert all(before[1] <= after[0] for case in CASES.values() for before, after in pairwise(case.spans))


def find_cases(wanted: str | None) -> dict[str, Case]:
    """The cases that a list of keys such as ``A,F,Y1`` names; all without one. Raises :class:`KeyError`."""
    if wanted is None:
        return CASES
    by_key = {name.split()[0]: name for name in CASES}
    return {by_key[key]: CASES[by_key[key]] for key in wanted.replace(",", " ").split()}
