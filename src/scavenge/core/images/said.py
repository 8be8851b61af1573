"""What an engine or a registry says when it does not deliver, and what that means. Pure: one table of words.

Engines pass on what registries, networks and disks say, wrapped in words of their own, so what is looked for may stand
anywhere in a text. The rows are tried in order: first what says that it would work at another time, so that a permanent
end is never read out of a passing trouble. What no row knows is :class:`scavenge.images.Broken`, which is tried again.

Only words that say so make an image missing, or the status 404 without any word: that answers a ``HEAD`` request. The
patterns cannot match inside a name or an address: those have no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from scavenge.core.naming import one_line
from scavenge.images import Broken, DeliveryEnd, Denied, DiskFull, Missing, Throttled, Unfit

LOOKED_AT_CHARACTERS = 20_000
WORDS_CHARACTERS = 400

_End: TypeAlias = Callable[[str], DeliveryEnd]

_STATUS = r"\b(?:HTTP|status)(?: ?code)?(?: from registry)?:? "  # moby and podman, of a reply whose body is no JSON
_NO_LOGIN = "there is no such image, or it takes a login that is allowed to have it"
_PLAIN_HTTP = "name the registry in the engine's list of insecure registries, or give it TLS"
_UNKNOWN_CA = "make the registry's certificate authority known to the engine"
_PROXY = "the engine's proxy wants credentials: they belong in the engine's own settings"


def _and(end: _End, hint: str) -> _End:
    """The same end with a hint behind what was said."""
    return lambda why: end(f"{why} ({hint})")


def _row(end: _End, *patterns: str) -> tuple[_End, re.Pattern[str]]:
    return end, re.compile("|".join(patterns), re.IGNORECASE)


# moby: github.com/moby/moby; containerd: its remotes and content packages, with which Docker pulls when it has the
# containerd store; podman: github.com/containers/image; the spec: that of OCI for registries
_ROWS = (
    _row(
        Throttled,
        r"\btoo ?many ?requests(?!:\S)",  # the spec's code, and HTTP's word for 429
        r"\bpull rate limit\b",  # Docker Hub
        r"\brate (?:limit )?exceeded\b",  # ECR, and mirrors
        r"\bquota exceeded for quota\b",  # Google's registries
        _STATUS + r"429\b",
    ),
    _row(
        DiskFull,
        r"\bno space left on device\b",  # ENOSPC, in everybody's words
        r"(?:^|\s)ENOSPC(?=:?(?:\s|$))",
        r"\bdisk quota exceeded\b",  # EDQUOT
        r"\bfree data blocks which is less than minimum required\b",  # moby on devicemapper
    ),
    _row(_and(Broken, _PLAIN_HTTP), r"\bserver gave HTTP response to HTTPS client\b"),  # Go
    _row(_and(Broken, _UNKNOWN_CA), r"\bx509: certificate signed by unknown authority\b"),  # Go
    _row(
        Broken,
        r"\bunexpected EOF\b",
        r": EOF$",
        r"\bconnection (?:reset|refused|timed out)\b",
        r"\b(?:i/o|handshake) timeout\b",
        r"\bClient\.Timeout\b|\btimed out\b|\bdeadline exceeded\b|\bcontext cancell?ed\b",
        r"\bno such host\b|\bserver misbehaving\b|\btemporary failure in name resolution\b",
        r"\bno route to host\b|\bnetwork is unreachable\b|\bbroken pipe\b",
        r"\bstream error: stream ID\b",  # Go on HTTP/2
        r"\blocked for\b.*: unavailable|\blocked: unavailable\b",  # containerd, of a ref that another pull has
        _STATUS + r"5\d\d\b",
        r"\b50\d (?:internal server error|bad gateway|service unavailable|gateway time-?out)\b",  # containerd
        r"\bunexpected commit digest sha256:e3b0c44298fc1c14",  # containerd, of no bytes at all
    ),
    _row(_and(Denied, _PROXY), r"\bproxy authentication required\b"),  # Go, of status 407
    _row(
        Unfit,
        r"\bno matching manifest for\b",  # moby
        r"\bdoes not match the specified platform\b|\bits platform \(.*\) does not match\b",  # moby
        r"\bcannot be used on this platform\b",  # moby
        r"\bno match for platform in manifest\b",  # containerd
        r"\bno image found in (?:image index|manifest list) for architecture\b",  # podman
        r"\b(?:filesystem layer|manifest|image(?: config)?) verification failed\b",  # moby
        r"\binvalid diffID for layer\b",  # moby, of an archive
        r"\blayers from manifest don't match image configuration\b",  # moby
        r"\bunexpected commit digest\b|\bfailed size validation\b",  # containerd
        r"\bmismatched image rootfs and manifest layers\b",  # containerd
        r"\bDigest did not match, expected\b",  # podman
        r"\binvalid tar header\b|\bgzip: invalid (?:header|checksum)\b|\bflate: corrupt input\b",  # Go
        r"\brepositories: no such file or directory\b",  # moby, of an archive without a manifest
        r"\bunrecognized image format\b",  # containerd, of an archive
        r"\bpayload does not match any of the supported image formats\b",  # podman, of an archive
        r"\bmedia type \S+ is no longer supported\b|\bschema 1 support (?:is|has been)\b",  # containerd, moby
        r"\bEncountered remote \S+ when fetching\b",  # moby, of what is no image, such as a chart
    ),
    _row(
        Denied,
        r"\bincorrect username or password\b",  # Docker Hub
        r"\binvalid username/password\b",  # podman
        r"\bno basic auth credentials\b",  # moby, of ECR
    ),
    _row(
        _and(Denied, _NO_LOGIN),
        r"\b(?:pull )?access denied\b",  # moby and containerd, also of an absent repository of Docker Hub
        r"(?:^|(?<!permission)\s)denied(?=:?(?:\s|$))",  # the spec's code
        r"(?:^|\s)unauthorized(?=:?(?:\s|$))",  # the spec's code; Quay and Harbor, also of what is absent
        r"\bauthentication required\b|\bauthorization failed\b",
        _STATUS + r"40[13]\b",
        r"\b40[13] (?:unauthorized|forbidden)\b",  # containerd
    ),
    _row(
        Missing,
        r"\bmanifest unknown\b|\bname unknown\b|\b(?:MANIFEST|NAME)_UNKNOWN\b",  # the spec's codes
        r"\bmanifest (?:for )?\S+ not found\b",  # moby
        r"\b(?:repository|artifact) \S+ not found\b",  # moby, Harbor
        r"\brepository name not known to registry\b",  # the distribution project
        r"\brepository (?:\S+ )?does not exist\b|\bdoes not exist in the registry\b",  # moby; ECR
        r"\bfailed to resolve (?:reference|image) \S+: \S+: not found\b|^[^\s/]+/\S+: not found$",  # containerd
        r"\bno such image\b",  # engines, of their own
        r"\binvalid reference format\b",  # engines, of a name that they cannot have
        r"\brepository name must not be more than 255\b",
    ),
)


def end_of(status: int | None, message: str, retry_after_s: float | None = None) -> DeliveryEnd:
    """How a delivery ended by what was said: an HTTP status where there is one, and a text, perhaps empty.

    *retry_after_s* is how long the source asks to be left alone, where it says so beside the text.
    """
    why = one_line(message[:LOOKED_AT_CHARACTERS], WORDS_CHARACTERS) or _status_alone(status)
    if status == 429 or (status == 503 and retry_after_s is not None):
        return Throttled(why, retry_after_s)
    end = _end_of_words(message) or _end_of_status(status, worded=message.strip() != "")
    ended = end(why)
    return Throttled(why, retry_after_s) if isinstance(ended, Throttled) else ended


def _end_of_words(message: str) -> _End | None:
    text = message[:LOOKED_AT_CHARACTERS].strip()
    return next((end for end, pattern in _ROWS if pattern.search(text)), None)


def _end_of_status(status: int | None, *, worded: bool) -> _End:
    """What a status means where the words say nothing that is known."""
    if status in (401, 403):
        return _and(Denied, _NO_LOGIN)
    if status == 404 and not worded:
        return Missing
    if status == 507:  # WebDAV: insufficient storage
        return DiskFull
    return Broken


def _status_alone(status: int | None) -> str:
    return "no word of what went wrong" if status is None else f"HTTP {status}"
