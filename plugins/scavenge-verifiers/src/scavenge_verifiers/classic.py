"""An environment that ``load_environment`` makes, verifiers' classic API, played by verifiers' own rollout and rubric.

What must not be lost on the way: verifiers keeps the error of a rollout in its state and scores it all the same, and
counts a reward function that raises as 0. Here a rollout whose model, or whose judge, failed has no reward.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from scavenge import Example, ModelSession, Rollout, ScavengeError
from scavenge_verifiers.base import MODEL, VerifiersEnvironment
from scavenge_verifiers.failures import RolloutFailed, failure, is_too_long
from scavenge_verifiers.model_client import ModelClients
from scavenge_verifiers.notes import Notes, noting
from scavenge_verifiers.plain import as_json, as_metrics, as_text_json
from scavenge_verifiers.rubrics import group_rewards, watch_rewards
from scavenge_verifiers.signals import signals_kept


class ClassicEnvironment(VerifiersEnvironment):
    """An environment of the classic API."""

    _env: Any = None
    _clients: ModelClients

    async def open(self) -> None:
        """Call ``load_environment``; it may take long, and blocks the loop for so long.

        Raises ``ValueError`` for an environment that scores rollouts by comparing them, and what it raises.
        """
        verifiers: Any = importlib.import_module("verifiers")
        with signals_kept():
            env = verifiers.load_environment(self.installed.name, **self.arguments)
        if not hasattr(env, "run_rollout"):
            raise ValueError(f"load_environment of {self.installed.name} gave a {type(env).__name__}, no environment")
        if names := group_rewards(env):
            what = f"{self.installed.name} scores the rollouts of an example by comparing them ({', '.join(names)})"
            raise ValueError(f"{what}; scavenge plays each by itself, so they would have no such score")
        watch_rewards(env)
        self._clients = ModelClients()
        self._env = env

    def examples(self) -> Iterator[Example]:
        """The rows to evaluate on, or those to train on where there are none, in their order."""
        rows = self._env.get_eval_dataset()
        numbers = list(rows["example_id"])
        unique = len(set(numbers)) == len(numbers)
        for index, row in enumerate(rows):
            id_ = str(row["example_id"] if unique else index)
            try:
                yield Example(id_, as_json(row))
            except ValueError as exc:
                yield Example(id_, {}, error=str(exc))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        """One rollout, scored. Raises what the model's side said where it failed."""
        with noting() as notes:
            client = self._clients.client(model)
            try:
                output = await self._env.run_rollout(dict(example.data), client, MODEL, {}, max_retries=0)
            except Exception as exc:
                if notes.reply_error is not None:
                    raise notes.reply_error from exc
                raise
        if (error := _error_of(output, notes)) is not None:
            raise error
        return _result(output, notes, scored=bool(self._env.score_rollouts))

    async def close(self) -> None:
        """Tear the environment down, once: it has arranged for that at the end of the process by itself, too."""
        if self._env is None:
            return
        env, self._env = self._env, None
        try:
            await env._teardown()
        finally:
            env._teardown = _nothing
            await self._clients.aclose()


async def _nothing() -> None:
    pass


def _error_of(output: Any, notes: Notes) -> ScavengeError | None:
    """Why a rollout has no result, if so."""
    if (error := output.get("error")) is not None:
        if notes.reply_error is not None:
            return notes.reply_error
        return failure(str(error["error"]), str(error["error_chain_repr"]))
    if not output.get("completion"):
        if notes.reply_error is not None and is_too_long(notes.reply_error):
            return notes.reply_error  # for verifiers that is an answer cut short, here before its first word
        if output.get("stop_condition") == "timeout_reached":
            return RolloutFailed("the environment's own timeout was over before the model's first reply")
    return notes.reward_failure


def _result(output: Any, notes: Notes, *, scored: bool) -> Rollout:
    info: dict[str, Any] = {
        "stop_condition": output.get("stop_condition"),
        "is_truncated": bool(output.get("is_truncated")),
    }
    if notes.reward_errors:
        info["reward_errors"] = list(notes.reward_errors)
    return Rollout(
        completion=as_text_json(output.get("completion")),
        reward=float(output["reward"]) if scored else None,
        metrics=as_metrics(output.get("metrics") or {}),
        answer=as_text_json(output.get("answer")),
        info=info,
    )
