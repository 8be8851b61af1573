"""The settings of a run as frozen values: what each key of an evaluation file means, its default and its bounds.

Names of plugins are not checked here, nor are the keys that belong to them: a :class:`PolicySettings` or
:class:`SourceSettings` carries these raw until the plugin's own class is known. Paths are absolute. No secrets: a key
is named by its environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import validators

from scavenge.config.problems import Where
from scavenge.core.health_settings import HealthSettings
from scavenge.core.images.reference import check_prefix
from scavenge.core.naming import shown
from scavenge.core.plan import OrderSettings
from scavenge.types import EndpointId, Json, Url

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@attrs.frozen
class NonEmpty:
    """A validator: a string with something to read in it."""

    def expects(self, noun: str) -> str:
        return "a non-empty string"

    def __call__(self, instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
        if not value.strip():
            raise ValueError(f"{attribute.name}: expected a non-empty string")


@attrs.frozen
class VariableName:
    """A validator: the name of an environment variable. Its message does not show what may be the secret itself."""

    def expects(self, noun: str) -> str:
        return "the name of an environment variable, not the key itself"

    def __call__(self, instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
        if not VARIABLE_NAME.fullmatch(value):
            raise ValueError(f"{attribute.name}: expected {self.expects('')}")


@attrs.frozen
class Between:
    """A validator: a number within two bounds, which it may be itself."""

    least: int
    most: int

    def expects(self, noun: str) -> str:
        return f"{noun} from {self.least} to {self.most}"

    def __call__(self, instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"{attribute.name}: expected {self.expects('a number')}, got {value}")


def _each_a_mirror(instance: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for index, prefix in enumerate(value):
        try:
            check_prefix(prefix)
        except ValueError as exc:
            raise ValueError(f"{attribute.name}[{index}]: {exc}") from exc


_at_least_0: Any = validators.ge(0)
_at_least_1: Any = validators.ge(1)
_above_0: Any = validators.gt(0)
_filled = NonEmpty()

_OWN_REQUEST_KEYS = {
    "model": "the model follows from `endpoint_id` or `model` of the eval",
    "messages": "the environment writes the messages",
    "prompt": "the environment writes the prompt",
    "stream": "set `stream` of the eval instead",
}


def _check_sampling(instance: object, attribute: attrs.Attribute[Any], table: Json) -> None:
    for key, remedy in _OWN_REQUEST_KEYS.items():
        if key in table:
            raise ValueError(f"must not set {key}: {remedy}")
    if (odd := next(_not_json(table), None)) is not None:
        raise ValueError(f"must hold what JSON can write, got {shown(odd)}")


def _not_json(value: object) -> Any:
    """The parts of a TOML value that JSON cannot write: dates, times, nan and infinities."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _not_json(item)
    elif isinstance(value, list):
        for item in value:
            yield from _not_json(item)
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and value - value != 0):
        yield value


@attrs.frozen
class EvalSettings:
    """One ``[[eval]]``. Its pool is either ``endpoint_id``'s, or the one server at ``api_base_url``."""

    env_id: str = attrs.field(validator=_filled)
    name: str = attrs.field(validator=_filled, default=attrs.Factory(lambda self: self.env_id, takes_self=True))
    env_args: Mapping[str, Any] = attrs.field(factory=dict)
    in_worker: bool | None = None
    """Whether worker processes play it. ``None``: as the environment says; one that is not for Trio is always so."""
    endpoint_id: str | None = attrs.field(default=None, validator=validators.optional(_filled))
    model: str | None = attrs.field(default=None, validator=validators.optional(_filled))
    api_base_url: Url | None = None
    api_key_var: str | None = attrs.field(
        default=None, validator=validators.optional(VariableName()), metadata={"secret": True}
    )
    num_examples: int = attrs.field(default=-1, validator=validators.ge(-1))
    """-1: all."""
    rollouts_per_example: int = attrs.field(default=1, validator=_at_least_1)
    max_concurrent: int | None = attrs.field(default=None, validator=validators.optional(_at_least_1))
    max_retries: int = attrs.field(default=3, validator=_at_least_0)
    max_lost: int = attrs.field(default=20, validator=_at_least_0)
    """0: no limit."""
    rollout_retries: int = attrs.field(default=0, validator=_at_least_0)
    request_timeout: float | None = attrs.field(default=None, validator=validators.optional(_above_0))
    idle_timeout: float = attrs.field(default=600.0, validator=_above_0)
    sampling_args: Mapping[str, Any] = attrs.field(factory=dict, validator=_check_sampling)
    stream: bool = True

    def __attrs_post_init__(self) -> None:
        one_server = self.model is not None or self.api_base_url is not None
        if self.endpoint_id is not None and (one_server or self.api_key_var is not None):
            raise ValueError("endpoint_id excludes model, api_base_url and api_key_var; keep one way to name the pool")
        if self.endpoint_id is None and (self.model is None or self.api_base_url is None):
            raise ValueError("no endpoints: set endpoint_id, or model and api_base_url together")

    @property
    def pool_id(self) -> EndpointId:
        """The pool that answers: ``endpoint_id``, or a name made of all that tells one fixed server from another."""
        if self.endpoint_id is not None:
            return EndpointId(self.endpoint_id)
        key = f" with {self.api_key_var}" if self.api_key_var is not None else ""
        return EndpointId(f"{self.model}@{self.api_base_url}{key}")


@attrs.frozen
class SourceSettings:
    """One ``[[source]]``: its type, and the keys that belong to that type."""

    type: str = attrs.field(validator=_filled)
    keys: Mapping[str, Any] = attrs.field(factory=dict)
    where: Where = attrs.field(default=Where("settings"), eq=False, repr=False)


@attrs.frozen
class PolicySettings:
    """``[admission]`` or ``[sessions]``: the policy, and the keys that belong to it. ``None``: the default one."""

    policy: str | None = attrs.field(default=None, validator=validators.optional(_filled))
    keys: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class StoreSettings:
    """One ``[[images.store]]``: its type, and the keys that belong to that type."""

    type: str = attrs.field(validator=_filled)
    keys: Mapping[str, Any] = attrs.field(factory=dict)
    where: Where = attrs.field(default=Where("settings"), eq=False, repr=False)


@attrs.frozen
class ImageSettings:
    """``[images]``. Times are in seconds, ``min_free_disk`` is in bytes."""

    engine: str | None = attrs.field(default=None, validator=validators.optional(_filled))
    """``None``: ``DOCKER_HOST``, else the usual sockets."""
    workers: int = attrs.field(default=2, validator=_at_least_1)
    """How many images are delivered side by side."""
    shipments: tuple[Path, ...] = ()
    """Patterns of file names."""
    mirrors: tuple[str, ...] = attrs.field(default=(), validator=_each_a_mirror)
    wait_timeout: float = attrs.field(default=1800.0, validator=_above_0)
    """How long a rollout waits for its images."""
    list_ttl: float = attrs.field(default=30.0, validator=_at_least_0)
    keep: bool = False
    min_free_disk: int | None = attrs.field(default=None, validator=validators.optional(_at_least_0))
    """``None``: the smaller of 10 GB and 5 % of the disk."""


@attrs.frozen
class WorkerSettings:
    """``[workers]``: the worker processes of each eval that is played in them. Times are in seconds."""

    enabled: bool = True
    """False: none are started, and an environment for Trio that asks for one is played in this process."""
    min: int = attrs.field(default=1, validator=_at_least_1)
    """How many are kept, also idle ones."""
    max: int | None = attrs.field(default=None, validator=validators.optional(_at_least_1))
    """``None``: as many as this process may use cores, and not less than ``min``."""
    multiplex: int = attrs.field(default=16, validator=_at_least_1)
    """How many rollouts a worker plays at once."""
    startup_timeout: float = attrs.field(default=600.0, validator=_above_0)
    """How long a worker may take to load its environment."""
    restart_backoff_max: float = attrs.field(default=30.0, validator=_above_0)
    """The longest pause before one that failed is started again."""
    request_deadline: float = attrs.field(
        default=attrs.Factory(lambda self: self.startup_timeout, takes_self=True), validator=_above_0
    )
    """How long a rollout may wait while no worker is ready."""

    def __attrs_post_init__(self) -> None:
        if self.max is not None and self.max < self.min:
            got = f"got min = {self.min} and max = {self.max}"
            raise ValueError(f"min must not be above max, {got}; lower min or raise max")


REQUEST_KEYS = ("max_retries", "max_lost", "request_timeout", "idle_timeout", "stream")
"""What holds for each request: keys of ``[[eval]]`` and of ``[gateway]``, which inherit them from above the tables."""


@attrs.frozen
class GatewaySettings:
    """``[gateway]``: the door for foreign clients. Times are in seconds."""

    host: str = attrs.field(default="127.0.0.1", validator=_filled)
    port: int = attrs.field(default=8400, validator=Between(0, 65535))
    """0: any that is free."""
    token_var: str | None = attrs.field(
        default=None, validator=validators.optional(VariableName()), metadata={"secret": True}
    )
    """The variable with the token that clients have to send."""
    session_idle: float = attrs.field(default=600.0, validator=_above_0)
    """How long a session may be without a request before it ends."""
    grace: float = attrs.field(default=30.0, validator=_at_least_0)
    """How long requests may take to end after a signal."""
    max_body: int = attrs.field(default=64 * 1024 * 1024, validator=_at_least_1)
    """In bytes."""
    max_retries: int = attrs.field(default=3, validator=_at_least_0)
    max_lost: int = attrs.field(default=20, validator=_at_least_0)
    """0: no limit."""
    request_timeout: float | None = attrs.field(default=None, validator=validators.optional(_above_0))
    idle_timeout: float = attrs.field(default=600.0, validator=_above_0)
    stream: bool = True
    """Whether servers are asked for a stream where the client wants none."""


@attrs.frozen
class RunSettings:
    """A whole evaluation file, every default filled in. ``stall_timeout`` and the interval are in seconds."""

    name: str = attrs.field(validator=_filled)
    base_dir: Path
    """Where relative paths start, also those in ``env_args`` and in plugins' keys; the evaluation file's folder."""
    output_dir: Path
    evals: tuple[EvalSettings, ...] = ()
    sources: tuple[SourceSettings, ...] = ()
    elastic: bool = False
    elastic_poll_interval: float = attrs.field(default=10.0, validator=validators.ge(0.1))
    stall_timeout: float = attrs.field(default=600.0, validator=_at_least_0)
    """0: wait for ever."""
    max_consecutive_failures: int = attrs.field(default=12, validator=_at_least_0)
    """0: off."""
    admission: PolicySettings = PolicySettings()
    sessions: PolicySettings = PolicySettings()
    order: OrderSettings = attrs.field(factory=OrderSettings)
    health: HealthSettings = attrs.field(factory=HealthSettings)
    images: ImageSettings = ImageSettings()
    image_stores: tuple[StoreSettings, ...] = ()
    """``[[images.store]]``."""
    workers: WorkerSettings = WorkerSettings()
    gateway: GatewaySettings = GatewaySettings()
    where: Where = attrs.field(default=Where("settings"), eq=False, repr=False)
    """Names the file and its tables in later messages: ``where.at("eval", 0, "env_args")``."""


def identity(settings: EvalSettings) -> Mapping[str, object]:
    """What of an evaluation changes its results, by dotted key: a run that is resumed must not differ in it.

    The model is in it where the eval names one itself; of a pool it becomes known with the first endpoint.
    """
    named = {"env_id": settings.env_id, "env_args": settings.env_args, "sampling_args": settings.sampling_args}
    return dict(_flat(named if settings.model is None else {**named, "model": settings.model}, ""))


def _flat(table: Mapping[str, Any], prefix: str) -> Any:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
