"""The environment ``chat``: one prompt, one reply, one score.

It decides what a row asks, what of the reply is scored and against what. It must not know which server answers, nor
keep rows: a row lives from the dataset's stream to its rollout.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import attrs
import trio

from scavenge.core.codeplace import raised_line
from scavenge.core.naming import shown, suggestion
from scavenge.core.score import NORMALIZERS, REGEX_REPLY_CHARS, normalized
from scavenge.environments.datasets import DatasetRef
from scavenge.environments.identify import Identifier
from scavenge.environments.mathscore import math_equal
from scavenge.environments.row import Row
from scavenge.environments.template import ONLY_PROMPT, PromptMaker, Template
from scavenge.errors import ConfigError, InfrastructureError, Problem, ScavengeError
from scavenge.plugin import Scorer
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.ports import Environment, ModelSession
from scavenge.types import Completion, Json

UNSCORED = "none"
ROWS_LOOKED_AT = 16
"""How many rows the check before the start reads to find one that can be read at all."""
SCORING_DEADLINE_S = 120.0
"""A scorer that takes longer is taken for stuck; its thread cannot be stopped, but the rollout ends."""
SCORING_THREADS = 4

ScorerFinder = Callable[[str], Scorer]


class PlayError(ScavengeError):
    """A rollout of this environment has no result: its row or its scorer failed."""


def _regular(settings: ChatSettings, field: attrs.Attribute[str | None], value: str | None) -> None:
    try:
        re.compile(value or "")
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(f"no regular expression: {exc}") from exc


def _not_empty(settings: ChatSettings, field: attrs.Attribute[Any], value: str | None) -> None:
    if value == "":
        raise ValueError("expected a name that is not empty")


def _template(settings: ChatSettings, field: attrs.Attribute[str], value: str) -> None:
    Template.parse(value)


def _normalizers(settings: ChatSettings, field: attrs.Attribute[list[str]], value: list[str]) -> None:
    for name in value:
        if name not in NORMALIZERS:
            raise ValueError(f'unknown normaliser "{name}"; {suggestion(name, NORMALIZERS)}')


@attrs.frozen
class ChatSettings:
    """``env_args`` of ``chat``."""

    dataset: DatasetRef
    prompt: str | None = attrs.field(default=None, validator=_not_empty)
    template: str = attrs.field(default=ONLY_PROMPT, validator=_template)
    system: str | None = None
    id: str = attrs.field(default="id", validator=_not_empty)
    answer: str = attrs.field(default="answer", validator=_not_empty)
    scorer: str = attrs.field(default="exact_match", validator=_not_empty)
    extract: str | None = attrs.field(default=None, validator=_regular)
    normalize: list[str] = attrs.field(factory=lambda: ["strip", "casefold"], validator=_normalizers)


def create_chat(settings: ChatSettings, find_scorer: ScorerFinder) -> ChatEnvironment:
    """The environment that the settings describe, once its dataset's first readable row has passed.

    Raises :class:`scavenge.errors.ConfigError` with problems placed at the keys of ``env_args``.
    """
    scorer = find_scorer(settings.scorer)
    if scorer.score is math_equal and importlib.util.find_spec("math_verify") is None:
        raise ConfigError([Problem("scorer", f'"{scorer.name}" needs the package math-verify: install scavenge[math]')])
    environment = ChatEnvironment(settings, scorer)
    try:
        settings.dataset.check()
        if settings.dataset.path is not None:
            _check_beginning(environment, settings.dataset)
    except (ValueError, OSError) as exc:
        raise ConfigError([Problem("dataset", str(exc))]) from exc
    return environment


def _check_beginning(environment: ChatEnvironment, dataset: DatasetRef) -> None:
    """Raise ``ValueError`` when no row at the beginning can be read, or the first one that can lacks something."""
    seen: Row | None = None
    for row in itertools.islice(dataset.rows(), ROWS_LOOKED_AT):
        seen = seen or row
        if row.data is not None:
            if (fault := environment.fault(row.data)) is not None:
                raise ValueError(f"{row.place}: {fault}")
            return
    if seen is not None:
        raise ValueError(f"{seen.place}: {seen.error}")


class ChatEnvironment(Environment):
    """Plays the rows of a dataset, one request each."""

    multi_turn: ClassVar[bool] = False

    def __init__(self, settings: ChatSettings, scorer: Scorer) -> None:
        self._settings = settings
        self._scorer = scorer
        self._prompts = PromptMaker(Template.parse(settings.template), settings.prompt, settings.system)
        self._extract = None if settings.extract is None else re.compile(settings.extract)
        self._threads = trio.CapacityLimiter(SCORING_THREADS)

    def examples(self) -> Iterator[Example]:
        """The rows of the dataset; one that is wrong has the id ``line:N`` and its error.

        Raises :class:`scavenge.InfrastructureError` when the dataset cannot be read on.
        """
        identifier = Identifier(self._settings.id)
        try:
            for row in self._settings.dataset.rows():
                yield identifier.example(row, self.fault)
        except (OSError, ValueError) as exc:
            raise InfrastructureError(f"dataset {self._settings.dataset}: {exc}") from exc

    def identity(self) -> Json:
        """A digest of the dataset."""
        found = self._settings.dataset.fingerprint()
        return {} if found is None else {"dataset": found}

    def fault(self, row: Json) -> str | None:
        """What keeps a row from being played and scored, as far as that shows before the reply."""
        try:
            self._prompts.messages(row)
        except ValueError as exc:
            return str(exc)
        answer = row.get(self._settings.answer)
        if not self._scorer.needs_answer:
            return None
        if answer is None:
            return (
                f'there is no answer in the field "{self._settings.answer}"; name the field with `answer`,'
                f' or use scorer = "{UNSCORED}"'
            )
        return None if self._scorer.in_thread else self._answer_fault(answer, row)

    def _answer_fault(self, answer: object, row: Json) -> str | None:
        try:
            self._scorer.score("", self._normalized(answer), row)  # see scavenge.core.score: raises for any reply
        except ValueError as exc:
            return str(exc)
        return None

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        """One request and its score."""
        try:
            messages = self._prompts.messages(example.data)
        except ValueError as exc:
            raise PlayError(str(exc)) from exc
        completion = await model.chat(messages)
        answer = example.data.get(self._settings.answer)
        extracted = self._extracted(completion.text)
        if extracted is None or self._settings.scorer == UNSCORED:
            reward = None if self._settings.scorer == UNSCORED else 0.0  # what is not in the asked form is wrong
        elif self._scorer.in_thread:
            reward = await self._score_in_thread(extracted, answer, example.data)
        else:
            reward = self._score(extracted, answer, example.data)
        return Rollout(completion.text, reward, answer=answer, info=self._info(completion, extracted))

    def _extracted(self, text: str) -> str | None:
        if self._extract is None:
            return text
        if (found := self._extract.search(text[-REGEX_REPLY_CHARS:])) is None:
            return None
        return (found[1] or "") if self._extract.groups else found[0]

    def _info(self, completion: Completion, extracted: str | None) -> Json:
        info: dict[str, object] = {"finish_reason": completion.finish_reason}
        if completion.reasoning is not None:
            info["reasoning"] = completion.reasoning
        if self._extract is not None:
            info["extracted"] = extracted
        return info

    async def _score_in_thread(self, reply: str, answer: object, row: Json) -> float:
        with trio.move_on_after(SCORING_DEADLINE_S):
            return await trio.to_thread.run_sync(
                self._score, reply, answer, row, limiter=self._threads, abandon_on_cancel=True
            )
        raise PlayError(f"scorer {self._scorer.name}: no score after {SCORING_DEADLINE_S:.0f} s")

    def _score(self, reply: str, answer: object, row: Json) -> float:
        try:
            score: object = self._scorer.score(str(self._normalized(reply)), self._normalized(answer), row)
        except Exception as exc:
            raise PlayError(f"scorer {self._scorer.name}: {raised_line(exc, self._scorer.score)}") from exc
        if not isinstance(score, (int, float)) or not math.isfinite(score):
            raise PlayError(f"scorer {self._scorer.name}: expected a finite number, got {shown(score)}")
        return float(score)

    def _normalized(self, value: object) -> object:
        return normalized(value, self._settings.normalize) if self._scorer.normalize else value
