"""What the SDK's errors say to a user: one line with what, where and the remedy.

What EC2 writes about a signature is not repeated: it holds the request that was signed, session token included. Nor is
what a program wrote that was to print credentials.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import attrs
from botocore import exceptions as sdk  # type: ignore[import-untyped]  # the SDK has no types of its own

TOLD_CHARACTERS = 200
"""How much of a message of EC2's or the SDK's is told."""

CLOCK_TOLERANCE = timedelta(minutes=1)
"""Beyond this the clocks are named as a cause; EC2 refuses signatures from about five minutes on."""

_FORBIDDEN = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_EXPIRED = frozenset({"RequestExpired", "ExpiredToken", "ExpiredTokenException", "RequestTimeTooSkewed"})
_UNKNOWN_CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_THROTTLED = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException"})


@attrs.frozen
class Place:
    """Where it was asked, for messages and remedies."""

    region: str
    endpoint_url: str | None = None
    profile: str | None = None
    regions: tuple[str, ...] = ()
    """Those that the SDK knows."""

    def __str__(self) -> str:
        return f"EC2 in {self.region}" + (f" at {self.endpoint_url}" if self.endpoint_url else "")

    @property
    def profile_option(self) -> str:
        return f" --profile {self.profile}" if self.profile else ""


def trouble(error: Exception, place: Place, action: str, now: datetime) -> str:
    """What an error says that was met while asking for *action*."""
    if isinstance(error, sdk.ClientError):
        return f"{place}: {_refused(error, place, action, now)}"
    return f"{place}: {_failed(error, place)}"


def clock_ahead(response: Mapping[str, Any], now: datetime) -> timedelta | None:
    """How much this machine's clock is ahead of the one of who answered, to the second; ``None``: it does not tell."""
    date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return timedelta(seconds=round((now - parsedate_to_datetime(date)).total_seconds()))
    except (TypeError, ValueError, OverflowError):  # no date, or one without a time zone
        return None


def _refused(error: sdk.ClientError, place: Place, action: str, now: datetime) -> str:
    code = str(error.response.get("Error", {}).get("Code", ""))
    renew = f"try `aws sts get-caller-identity{place.profile_option}`"
    if code in _FORBIDDEN:
        remedy = "" if action == "DescribeInstances" else ", or set spot_notices = false"
        return f"{action} is not allowed ({code}); allow ec2:{action} to these credentials{remedy}"
    if code in _EXPIRED | _UNKNOWN_CREDENTIALS:
        what = "have expired" if code in _EXPIRED else "are not accepted"
        return f"the credentials {what} ({code}); {_clock_remedy(error.response, now)}renew them, or {renew}"
    if code == "OptInRequired":
        return f"the account cannot use this region ({code}); enable it for the account, or set another region"
    if code in _THROTTLED:
        return f"it throttles the account's calls ({code}); it is asked again; a longer elastic_poll_interval helps"
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return f"out of order ({_one_line(code)}); it is asked again"
    message = _one_line(str(error.response.get("Error", {}).get("Message", "")))
    return f"{action} is refused: {_one_line(code)}: {message}; look at filters"


def _clock_remedy(response: Mapping[str, Any], now: datetime) -> str:
    ahead = clock_ahead(response, now)
    if ahead is None or abs(ahead) < CLOCK_TOLERANCE:
        return ""
    side = "ahead of" if ahead > timedelta() else "behind"
    return f"this machine's clock is {abs(ahead).total_seconds():.0f} s {side} EC2's, set it right; else "


def _failed(error: Exception, place: Place) -> str:
    again = "it is asked again"
    if isinstance(error, sdk.EndpointConnectionError | sdk.ConnectTimeoutError) and _is_unknown(place):
        return f"cannot be reached, and the SDK knows no such region; correct `region`{_nearest(place)}"
    if isinstance(error, sdk.HTTPClientError | sdk.ConnectionError):
        return f"cannot be reached ({type(error).__name__}); {again}; look at the network and its proxies"
    if isinstance(error, sdk.PaginationError):
        return f"an answer without an end; {again}"
    if isinstance(error, sdk.BotoCoreError):
        return _unprepared(error, place)
    return f"an answer that is cut, or not EC2's ({type(error).__name__}); {again}"  # never with what it holds


def _unprepared(error: sdk.BotoCoreError, place: Place) -> str:
    """What is wrong with the SDK's settings or credentials, before anything was asked."""
    match error:
        case sdk.NoCredentialsError() | sdk.PartialCredentialsError():
            return "there are no whole credentials in the SDK's chain; set `profile`, AWS_PROFILE or AWS_ACCESS_KEY_ID"
        case sdk.UnauthorizedSSOTokenError() | sdk.SSOTokenLoadError() | sdk.TokenRetrievalError():
            return f"the SSO session is over; run `aws sso login{place.profile_option}`"
        case sdk.CredentialRetrievalError():
            return "no credentials from where the profile says they come from; see `aws sts get-caller-identity`"
        case sdk.ProfileNotFound():
            return f'there is no profile "{place.profile}" in the SDK\'s files; create it, or correct `profile`'
        case sdk.NoRegionError():
            return "no region is set; set `region`, or AWS_DEFAULT_REGION"
        case sdk.InvalidRegionError():
            return "no name of a region; correct `region`"
    return f"the SDK says {type(error).__name__}: {_one_line(str(error))}"


def _is_unknown(place: Place) -> bool:
    return place.endpoint_url is None and place.region not in place.regions


def _nearest(place: Place) -> str:
    near = difflib.get_close_matches(place.region, place.regions, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _one_line(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= TOLD_CHARACTERS else line[: TOLD_CHARACTERS - 1] + "…"
