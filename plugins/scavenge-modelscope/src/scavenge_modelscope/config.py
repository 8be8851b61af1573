"""The keys of an image store of type ``modelscope``. The token is named by its variable."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from scavenge.plugin import StoreError

TOKEN_VARIABLE = "MODELSCOPE_API_TOKEN"  # noqa: S105 - its name
"""What ModelScope's own tools read."""
REPO_TYPES = ("dataset", "model")

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_REPO = re.compile(f"{_PART}/{_PART}")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"[!-~]+")


def _check_repo(config: object, field: attrs.Attribute[Any], repo: str) -> None:
    if not _REPO.fullmatch(repo):
        raise ValueError(f'expected a repository such as "my-name/my-images", got {repo!r}')


def _check_type(config: object, field: attrs.Attribute[Any], repo_type: str) -> None:
    if repo_type not in REPO_TYPES:
        raise ValueError(f"expected {' or '.join(REPO_TYPES)}, got {repo_type!r}")


def _check_revision(config: object, field: attrs.Attribute[Any], revision: str) -> None:
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ValueError(f'expected the name of a branch such as "master", got {revision!r}')


def _check_variable(config: object, field: attrs.Attribute[Any], name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of an environment variable, not the token itself")


def _check_endpoint(config: object, field: attrs.Attribute[Any], endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user name or password; name the token's variable in `token_var`")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected the URL of a ModelScope site, such as https://modelscope.cn")


@attrs.frozen
class ModelScopeConfig:
    """The keys of an ``[[images.store]]`` of type ``modelscope``."""

    repo: str = attrs.field(validator=_check_repo)
    repo_type: str = attrs.field(default="dataset", validator=_check_type)
    revision: str = attrs.field(default="master", validator=_check_revision)
    token_var: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_variable), metadata={"secret": True}
    )
    """``None``: ``MODELSCOPE_API_TOKEN``, where that is set."""
    endpoint: str = attrs.field(default="https://modelscope.cn", validator=_check_endpoint)

    @property
    def where(self) -> str:
        """The repository, as messages call it."""
        return f"{self.repo_type} {self.repo} at {self.endpoint}"

    def token(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The token; ``None``: what is public is read without.

        Raises :class:`StoreError` for one that is not there although it is named, or that cannot be one.
        """
        name = self.token_var or TOKEN_VARIABLE
        token = environ.get(name)
        if not token:
            if self.token_var is None:
                return None
            state = "not set" if token is None else "empty"
            remedy = "set it to the token, or remove `token_var`"
            raise StoreError(f"the environment variable {name} is {state}; {remedy}")
        if not _TOKEN.fullmatch(token):
            what = "white space, or what is not ASCII"
            raise StoreError(f"the environment variable {name} holds {what}; set it to the token alone")
        return token
