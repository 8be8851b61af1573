"""A small environment of the newer API, as a package on the Environments Hub has it: tasks, and what plays them."""

from __future__ import annotations

import sys

import verifiers.v1 as vf

__all__ = ["AskHarness", "PlusOneTaskset"]

PROGRAM = """
import json, sys, urllib.error, urllib.request
endpoint, secret, model, prompt, turns = sys.argv[1:]
messages = [{"role": "user", "content": prompt}]
for _ in range(int(turns)):
    body = json.dumps({"model": model, "messages": messages}).encode()
    head = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/chat/completions", body, head)) as reply:
            said = json.load(reply)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as exc:
        sys.exit(f"the program got HTTP {exc.code}")
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Sure?"}]
"""


class PlusOneData(vf.TaskData):
    """One question."""

    answer: str


class PlusOneTask(vf.Task[PlusOneData]):
    """How it is scored."""

    @vf.reward(weight=2.0)
    async def correct(self, trace: vf.Trace) -> float:
        """Whether the answer is in the last reply."""
        if "judge" in trace.last_reply:
            raise RuntimeError("the judge is ill")
        return float(self.data.answer in trace.last_reply)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        """The length of the last reply."""
        return float(len(trace.last_reply))


class PlusOneConfig(vf.TasksetConfig):
    """Its own keys."""

    count: int = 3
    ids: bool = False


class PlusOneTaskset(vf.Taskset[PlusOneTask, PlusOneConfig]):
    """The questions."""

    def load(self):
        for number in range(self.config.count):
            id_ = f"q{number}" if self.config.ids else None
            data = PlusOneData(id=id_, prompt=f"What is {number} + 1 ?", answer=str(number + 1))
            yield PlusOneTask(data, self.config.task)


class AskConfig(vf.HarnessConfig):
    """Its own keys."""

    turns: int = 1


class AskHarness(vf.Harness[AskConfig]):
    """A program that asks, so often as it is told to."""

    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        arguments = [endpoint, secret, ctx.model, data.prompt, str(self.config.turns)]
        return await runtime.run_program([sys.executable, "-c", PROGRAM, *arguments], {})
