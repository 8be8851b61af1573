"""Names of container images: from what people write to the one name that an image is told apart by. Pure.

The grammar is that of the distribution project (its ``reference`` package), which Docker and Podman share: a name
without a registry is Docker Hub's, one of Docker Hub's without a folder is in ``library/``, one without a tag or digest
has the tag ``latest``. Of a tag and a digest together the digest counts: it says more. Unlike there, a first part with
upper-case letters and neither dot nor port is no registry: it is a folder that somebody misspelt.

Knows nothing of engines, nor of whether a name is anybody's.
"""

from __future__ import annotations

import re
from hashlib import sha256

import attrs

from scavenge.core.naming import shown

DOCKER_HUB = "docker.io"
LATEST = "latest"
PATH_MAX = 255
"""How long a path may be: the distribution project's ``RepositoryNameTotalLengthMax``."""

HOST_MAX = 253 + len(":65535")
"""That of a name in DNS (RFC 1035), and a port."""

FILE_NAME_MAX = 120
HASH_CHARACTERS = 12
"""How much of a hash makes a file's name its image's own."""

_OLD_HUB = "index.docker.io"
_HUB_HOSTS = frozenset({DOCKER_HUB, _OLD_HUB, "registry-1.docker.io"})
_LIBRARY = "library/"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[A-Fa-f0-9:]+\])(?::[0-9]+)?")
_PART = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}")
_IMAGE_ID = re.compile(r"(?:sha256:)?[a-f0-9]{64}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")
_NO_PART = re.compile(r"[^a-z0-9.]+")

_LOOKS = "it looks like python:3.12, ghcr.io/owner/name:tag or registry.example:5000/name@sha256:…"
_PREFIX_LOOKS = "it looks like mirror.example:5000/folder"


class BadReference(ValueError):
    """A text is no name of an image; the message says what is wrong and what one looks like."""


@attrs.frozen
class ImageName:
    """The parts of a canonical name. Of *tag* and *digest* one is empty."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """The name without its tag or digest."""
        return f"{self.registry}/{self.path}"

    @property
    def reference(self) -> str:
        """The digest, or the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        """The canonical name."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


def canonical(text: str) -> str:
    """The one name of the image that *text* names, with everything said. Raises :class:`BadReference`."""
    if _IMAGE_ID.fullmatch(text):
        raise _bad(text, "is the id of an image, which no registry knows; name it by its tag or digest")
    if scheme := _SCHEME.match(text):
        raise _bad(text, f"is a URL; leave {scheme[1]}:// away")
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _bad(text, "has a digest that is not sha256: and 64 digits of lower-case hexadecimal")
    name, tag = _tag_of(name)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _bad(text, "has a tag that is not of 1 to 128 letters, digits, dots, hyphens and underscores")
    registry, path = _registry_of(name)
    _check_place(text, registry, path)
    return str(ImageName(registry, path, "" if at else LATEST if tag is None else tag, digest))


def parts(name: str) -> ImageName:
    """The parts of a canonical name."""
    repository, at, digest = name.partition("@")
    tag = None
    if not at:
        repository, tag = _tag_of(name)
    registry, _, path = repository.partition("/")
    return ImageName(registry, path, tag or "", digest)


def familiar(name: str) -> str:
    """A canonical name as people write it: ``python:3.12``. Its canonical name is *name* again."""
    found = parts(name)
    if found.registry != DOCKER_HUB:
        return name
    path = found.path.removeprefix(_LIBRARY)
    if "/" in path:
        path = found.path
    short = str(attrs.evolve(found, path=path)).removeprefix(f"{DOCKER_HUB}/")
    return short if _names(short, name) else name


def check_prefix(text: str) -> str:
    """The prefix of a mirror, without a slash at its end. Raises :class:`BadReference`."""
    if scheme := _SCHEME.match(text):
        raise _bad(text, f"is a URL; leave {scheme[1]}:// away: engines know by themselves", _PREFIX_LOOKS)
    prefix = text.removesuffix("/")
    host, slash, folder = prefix.partition("/")
    if not _HOST.fullmatch(host) or not _is_host(host):
        raise _bad(text, "does not begin with a registry's host", _PREFIX_LOOKS)
    if slash and not all(_PART.fullmatch(part) for part in folder.split("/")):
        raise _bad(text, f"has a folder {shown(folder)} that no registry can have", _PREFIX_LOOKS)
    if host in _HUB_HOSTS and not slash:
        raise _bad(text, "is Docker Hub itself, which is asked anyway", _PREFIX_LOOKS)
    return prefix


def under(prefix: str, name: str) -> str:
    """What a mirror calls the image *name*: Docker Hub's by its path, any other's with its registry before that.

    So no two images have one name at a mirror, and one that only mirrors Docker Hub lacks the images of others. Raises
    :class:`BadReference` for a bad *prefix*. Its path may be longer than an engine takes.
    """
    found = parts(name)
    path = found.path
    if found.registry != DOCKER_HUB:
        path = f"{_NO_PART.sub('-', found.registry.lower()).strip('-')}/{path}"  # a port's colon ends a path
    host, slash, folder = check_prefix(prefix).partition("/")
    return str(attrs.evolve(found, registry=host, path=f"{folder}{slash}{path}"))


def safe_file_name(name: str) -> str:
    """A name for a file of the image *name*: its words as far as they are safe, and a hash of the whole.

    Of ``[a-z0-9._-]``, at most :data:`FILE_NAME_MAX` long, beginning with a letter or digit, different for different
    names.
    """
    own = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    words = _UNSAFE.sub("-", name.lower()).strip("._-")[: FILE_NAME_MAX - len(own) - 1]
    return f"{words}-{own}" if words else own


def _tag_of(name: str) -> tuple[str, str | None]:
    """The name before the tag, and the tag; a colon before the last slash belongs to a port."""
    before, colon, after = name.rpartition(":")
    return (before, after) if colon and "/" not in after and before else (name, None)


def _registry_of(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if not slash or not _is_host(first):
        registry, path = DOCKER_HUB, name
    else:
        registry, path = (DOCKER_HUB if first == _OLD_HUB else first), rest
    return registry, path if registry != DOCKER_HUB or "/" in path or not path else _LIBRARY + path


def _is_host(first: str) -> bool:
    return first == "localhost" or "." in first or ":" in first


def _check_place(text: str, registry: str, path: str) -> None:
    if not path.removeprefix(_LIBRARY):
        raise _bad(text, "names no image")
    if not _HOST.fullmatch(registry) or len(registry) > HOST_MAX:
        raise _bad(text, f"has a registry {shown(registry)} that is no host")
    for part in path.split("/"):
        if not _PART.fullmatch(part):
            upper = part != part.lower() and _PART.fullmatch(part.lower())
            what = "is in upper case" if upper else "is not of letters and digits, with . _ __ or - between them"
            raise _bad(text, f"has a part {shown(part)} that {what}")
    if len(path) > PATH_MAX:
        raise _bad(text, f"has a path of more than {PATH_MAX} characters")


def _names(text: str, name: str) -> bool:
    try:
        return canonical(text) == name
    except BadReference:
        return False


def _bad(text: str, what: str, looks: str = _LOOKS) -> BadReference:
    return BadReference(f"{shown(text)} {what}; {looks}")
