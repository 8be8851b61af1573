"""What a plugin is written against: the hooks, the descriptors that they return, and the types behind those.

A hook is a plain function that returns a list of descriptors; it never waits. What waits lives behind a descriptor.
A descriptor carries the attrs class of its configuration, so that a plugin's keys are validated like scavenge's own.

versionadded: 0.1
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import pluggy

from scavenge.core.doorwords import read_reply
from scavenge.core.endpoint_template import EndpointTemplate
from scavenge.errors import InfrastructureError, ScavengeError, SourceError, StoreError
from scavenge.images import ImageRecord, Platform, Transferred
from scavenge.listings import EndpointSpec, Listing
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.filestore import FileStore
from scavenge.runtime.ports import (
    AdmissionPolicy,
    EndpointSource,
    Environment,
    ImageStore,
    ModelSession,
    Report,
    StoreFiles,
    SyncModelSession,
)
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.types import CapChanged, Json

__all__ = [
    "AdmissionPolicy",
    "AdmissionPolicyType",
    "CapChanged",
    "Ended",
    "Ending",
    "EndpointSource",
    "EndpointSourceType",
    "EndpointSpec",
    "EndpointTemplate",
    "Environment",
    "EnvironmentType",
    "Example",
    "FileStore",
    "Flow",
    "GateView",
    "ImageRecord",
    "ImageStore",
    "ImageStoreType",
    "InfrastructureError",
    "Listing",
    "ModelSession",
    "Platform",
    "Report",
    "Rollout",
    "Scorer",
    "ServerLoad",
    "SourceError",
    "StoreError",
    "StoreFiles",
    "SyncModelSession",
    "Transferred",
    "WarmStart",
    "hookimpl",
    "hookspec",
    "model_error",
    "rest",
    "scavenge_admission_policies",
    "scavenge_endpoint_sources",
    "scavenge_environments",
    "scavenge_image_stores",
    "scavenge_scorers",
]

hookspec = pluggy.HookspecMarker("scavenge")
hookimpl = pluggy.HookimplMarker("scavenge")
"""Marks a plugin's function as the implementation of the hook of the same name."""


def _check_name(descriptor: object, field: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value or value != value.strip():
        raise TypeError(f"{type(descriptor).__name__}: name must be a non-empty string, got {value!r}")
    if ":" in value:
        raise ValueError(f'{type(descriptor).__name__}: name "{value}" has a colon, which names a Python object')


@attrs.frozen
class _CheckConfig:
    """A class whose keys can all be set: none has only a name that its table has ``taken`` already."""

    taken: str | None = None

    def __call__(self, descriptor: object, field: attrs.Attribute[type], value: object) -> None:
        kind = type(descriptor).__name__
        if not isinstance(value, type) or not attrs.has(value):
            raise TypeError(f"{kind}: config must be an attrs class, got {value!r}")
        config = f"{kind}: config {value.__qualname__}"
        if "__attrs_attrs__" not in vars(value):
            what = "has only the keys of the attrs class that it derives from"
            raise TypeError(f"{config} {what}; decorate it with @attrs.frozen, too")
        if issubclass(value, EndpointTemplate) and not _are_texts(value.FACTS):
            remedy = 'write FACTS: ClassVar[tuple[str, ...]] = ("address",)'
            raise TypeError(f"{config}: FACTS must be a tuple of strings, got {value.FACTS!r}; {remedy}")
        takers = [attribute.name for attribute in attrs.fields(value) if attribute.metadata.get("rest")]
        if len(takers) > 1:
            raise TypeError(f"{config}: the fields {' and '.join(takers)} each take the rest of the keys; keep one")
        for attribute in attrs.fields(value):
            keys = {attribute.alias, attribute.metadata.get("alias")}
            if attribute.init and attribute.name not in takers and keys <= {self.taken, None}:
                what = f'the key "{self.taken}" can never be set, since its table names the {kind} by it'
                raise TypeError(f"{config}: {what}; rename the field")


def _are_texts(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(text, str) for text in value)


def rest() -> Any:
    """Declare a field for the keys that no other field of a configuration has: ``args: Mapping[str, Any] = rest()``.

    It takes whatever TOML has; with ``Mapping[str, int]`` all its values are integers. A configuration has one at most,
    and then no key is unknown.

    versionadded: 0.1
    """
    return attrs.field(factory=dict, metadata={"rest": True})


def model_error(http_status: int, body: bytes) -> ScavengeError:
    """The error that a reply to a foreign client of ``model.base_url`` stands for, as ``model.chat`` would raise it.

    An environment whose client says only that the status was bad raises this instead, so that the rollout's error is
    the same as with ``model.chat``. Raises ``ValueError`` for a reply that is none.

    versionadded: 0.1
    """
    try:
        read_reply(http_status, body)
    except ScavengeError as exc:
        return exc
    raise ValueError(f"HTTP {http_status} with a completion is no error")


def _check_callable(descriptor: object, field: attrs.Attribute[Any], value: Any) -> None:
    kind = f"{type(descriptor).__name__}: {field.name}"
    if not callable(value):
        raise TypeError(f"{kind} must be callable, got {value!r}")
    if inspect.iscoroutinefunction(value):
        name = getattr(value, "__qualname__", repr(value))
        if field.name == "open":
            remedy = f"`yield` what it opens in {name} and decorate it with contextlib.asynccontextmanager"
            raise TypeError(f"{kind} must give an async context manager; {remedy}")
        raise TypeError(f"{kind} must be a plain function, got the coroutine function {name}")
    if inspect.isasyncgenfunction(value):
        raise TypeError(f"{kind}: decorate {value.__qualname__} with contextlib.asynccontextmanager")


def _check_owned(descriptor: EnvironmentType, field: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"EnvironmentType: with_owner must be True or False, got {value!r}")
    if value and "/" in descriptor.name:
        raise ValueError(f'EnvironmentType: name "{descriptor.name}" has an owner already; leave with_owner out')


def _check_address(descriptor: ImageStoreType, field: attrs.Attribute[str], value: object) -> None:
    kind = "ImageStoreType: address"
    if not isinstance(value, str):
        raise TypeError(f"{kind} must be a string, the name of a field of config; got {value!r}")
    keys = [one.name for one in attrs.fields(descriptor.config) if one.init and not one.metadata.get("rest")]
    if value not in keys:
        raise ValueError(
            f"{kind}: config {descriptor.config.__qualname__} has no key {value!r}; name one of its fields"
        )


@attrs.frozen
class EndpointSourceType:
    """A kind of endpoint source: ``[[source]]`` with ``type = name`` and the keys of ``config``.

    ``open(config)`` gives an async context manager that yields the source; scavenge enters it when the run starts and
    leaves it when the run ends.

    versionadded: 0.1
    """

    name: str = attrs.field(validator=_check_name)
    config: type = attrs.field(validator=_CheckConfig("type"))
    open: Callable[..., AbstractAsyncContextManager[EndpointSource]] = attrs.field(validator=_check_callable)


@attrs.frozen
class AdmissionPolicyType:
    """A kind of admission policy: ``[admission]`` with ``policy = name`` and the keys of ``config``.

    ``create(config)`` makes the policy of one endpoint.

    versionadded: 0.1
    """

    name: str = attrs.field(validator=_check_name)
    config: type = attrs.field(validator=_CheckConfig("policy"))
    create: Callable[..., AdmissionPolicy] = attrs.field(validator=_check_callable)


@attrs.frozen
class EnvironmentType:
    """A kind of environment: ``[[eval]]`` with ``env_id = name`` and ``env_args`` with the keys of ``config``.

    ``create(config)`` makes the environment of one evaluation before anything is started; it may read a file's
    beginning, and raises :class:`scavenge.errors.ConfigError` (each problem's ``where`` names the key of ``env_args``)
    or ``ValueError`` when the evaluation cannot work. An environment that is played in workers is made there once more,
    by the same ``create``, and the one made before is dropped.

    versionadded: 0.1
    """

    name: str = attrs.field(validator=_check_name)
    config: type = attrs.field(validator=_CheckConfig())
    create: Callable[..., Environment] = attrs.field(validator=_check_callable)
    with_owner: bool = attrs.field(default=False, validator=_check_owned)
    """Whether ``env_id = "OWNER/NAME"`` names it too, with any owner, where no environment has the whole name.

    versionadded: 0.1
    """


@attrs.frozen
class Scorer:
    """A way to score a reply: ``score(reply, answer, row) -> float``.

    ``reply`` is the text that ``extract`` left of the model's reply, ``answer`` the row's value or ``None`` where it
    has none, ``row`` the whole row. What ``score`` raises is that rollout's error; so is what is no finite number.

    versionadded: 0.1
    """

    name: str = attrs.field(validator=_check_name)
    score: Callable[[str, object, Json], float] = attrs.field(validator=_check_callable)
    normalize: bool = True
    """Whether ``reply`` and a text ``answer`` pass through the environment's normalisers first."""
    needs_answer: bool = False
    """Whether a row without an answer is an error of that row."""
    in_thread: bool = True
    """Whether ``score`` is called in a thread (several at once), so that it may block; false: in the event loop."""


@attrs.frozen
class ImageStoreType:
    """A kind of image store: ``[[images.store]]`` with ``type = name`` and the keys of ``config``.

    ``open(config)`` gives an async context manager that yields the store; scavenge enters it when the run starts and
    leaves it when the run ends. It opens also where the store cannot be reached: its calls say so.

    versionadded: 0.1
    """

    name: str = attrs.field(validator=_check_name)
    config: type = attrs.field(validator=_CheckConfig("type"))
    open: Callable[..., AbstractAsyncContextManager[ImageStore]] = attrs.field(validator=_check_callable)
    address: str = attrs.field(validator=_check_address)
    """The field of ``config`` that says where the store is: what comes after the colon of ``--to NAME:…``."""


@hookspec
def scavenge_endpoint_sources() -> Sequence[EndpointSourceType]:  # type: ignore[empty-body]  # a specification
    """Name the kinds of endpoint source that this plugin adds.

    versionadded: 0.1
    """


@hookspec
def scavenge_admission_policies() -> Sequence[AdmissionPolicyType]:  # type: ignore[empty-body]  # a specification
    """Name the admission policies that this plugin adds.

    versionadded: 0.1
    """


@hookspec
def scavenge_environments() -> Sequence[EnvironmentType]:  # type: ignore[empty-body]  # a specification
    """Name the environments that this plugin adds.

    versionadded: 0.1
    """


@hookspec
def scavenge_scorers() -> Sequence[Scorer]:  # type: ignore[empty-body]  # a specification
    """Name the scorers that this plugin adds.

    versionadded: 0.1
    """


@hookspec
def scavenge_image_stores() -> Sequence[ImageStoreType]:  # type: ignore[empty-body]  # a specification
    """Name the kinds of image store that this plugin adds.

    versionadded: 0.1
    """
