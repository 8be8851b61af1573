"""A taskset of ``verifiers.v1``, and the agents that play its tasks, run as verifiers' own evaluation does.

What must not be lost on the way: an episode holds the errors of its agents and of their requests as values, and its
reward counts what was not scored as 0. Here an episode that is not complete is an error, with what the model's side
said.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from scavenge import ConfigError, Example, ModelSession, Problem, Rollout
from scavenge_verifiers.base import MODEL, VerifiersEnvironment
from scavenge_verifiers.endpoint import endpoint_of
from scavenge_verifiers.episodes import error_of, result_of
from scavenge_verifiers.plain import as_json
from scavenge_verifiers.serving import Serving

_TASK = "task"


class TasksetEnvironment(VerifiersEnvironment):
    """An environment of ``verifiers.v1``; its arguments are those of verifiers' ``[env]`` table."""

    _env: Any = None
    _v1: Any = None
    _serving: Serving | None = None

    async def open(self) -> None:
        """Make the environment of its configuration, and start what its episodes share.

        Raises :class:`scavenge.ConfigError` for arguments that verifiers refuses, and what it raises.
        """
        self._v1 = importlib.import_module("verifiers.v1")
        loaders: Any = importlib.import_module("verifiers.v1.utils.loaders")
        try:
            env = loaders.load_environment(loaders.resolve_env_config(self._config()))
        except ValueError as exc:
            if callable(getattr(exc, "errors", None)):
                raise ConfigError(_problems(exc)) from exc
            raise
        data = type(env.taskset).task_type().data_type()
        if hidden := [name for name, field in data.model_fields.items() if field.exclude]:
            what = f"{data.__name__} leaves {', '.join(hidden)} out of its data"
            raise ValueError(f"{what}, so its tasks cannot be given to a worker")
        self._env, self._serving = env, Serving(env)
        await self._serving.start()

    def examples(self) -> Iterator[Example]:
        """The tasks in their order. A taskset without end is a dataset without end."""
        for index, task in enumerate(self._env.taskset):
            own_id = getattr(task.data, "id", None)
            id_ = str(index if own_id is None else own_id)
            try:
                yield Example(id_, {_TASK: as_json(task.data.model_dump(mode="json", exclude_defaults=True))})
            except ValueError as exc:
                yield Example(id_, {}, error=str(exc))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        """One episode, scored. Raises what the model's side said where it failed."""
        (slot,) = self._env.slots(self._task(example.data[_TASK]))
        with endpoint_of(model, self._v1.EvalClientConfig) as endpoint:
            episode = await self._env.run_slot(slot, self._v1.ModelContext(model=MODEL, client=endpoint))
        if (error := error_of(episode, complete=self._env.complete(episode))) is not None:
            raise error
        return result_of(episode)

    async def close(self) -> None:
        """Stop what the episodes shared."""
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await serving.stop()

    def _config(self) -> dict[str, Any]:
        """The arguments, with the taskset's id. An environment that names its own taskset keeps that."""
        taskset = self.arguments.get("taskset", {})
        if not isinstance(taskset, Mapping):
            raise ConfigError([Problem("taskset", f"expected a table, got {taskset!r}")])
        return {**self.arguments, "taskset": {"id": self.installed.name, **taskset}}

    def _task(self, data: object) -> Any:
        """The task of a row, made as its taskset makes it."""
        kind = type(self._env.taskset).task_type()
        return kind(kind.data_type().model_validate(data), self._env.config.taskset.task)


def _problems(error: Any) -> Iterator[Problem]:
    """What pydantic has found, each with its place in verifiers' configuration."""
    for one in error.errors():
        place = ".".join(map(str, one["loc"])) or "id"
        yield Problem(place, str(one["msg"]).removeprefix("Value error, "))
