"""What is said of errors that no stand-in for EC2 can bring about, and what is never repeated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore import exceptions as sdk
from scavenge_ec2.troubles import TOLD_CHARACTERS, Place, clock_ahead, trouble

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
PLACE = Place("eu-west-1", profile="night", regions=("eu-west-1", "us-east-1"))


def refusal(code: str, message: str = "", status: int = 400, date: str | None = None) -> sdk.ClientError:
    headers = {} if date is None else {"date": date}
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return sdk.ClientError(response, "DescribeInstances")


def told(error: Exception, place: Place = PLACE) -> str:
    return trouble(error, place, "DescribeInstances", NOW)


def test_the_text_of_a_refused_signature_is_not_repeated():
    message = "The Canonical String should have been 'x-amz-security-token:SECRET'"
    for code in ("SignatureDoesNotMatch", "AuthFailure", "InvalidClientTokenId", "RequestExpired"):
        text = told(refusal(code, message, 403))
        assert "SECRET" not in text
        assert code in text
        assert "aws sts get-caller-identity --profile night" in text


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [(400, "400 s ahead of EC2's, set it right; else renew"), (-400, "400 s behind EC2's"), (20, "; renew them")],
)
def test_a_clock_is_blamed_where_it_is_wrong(ahead_s, words):
    date = format_datetime(NOW - timedelta(seconds=ahead_s), usegmt=True)
    assert words in told(refusal("RequestExpired", date=date))


@pytest.mark.parametrize(
    "date", [None, "", "yesterday", "Tue, 01 Jan 2030 12:00:00 -0000", f"Tue, 01 Jan {10**20}", "\x00"]
)
def test_an_answer_without_a_date_tells_nothing_of_the_clock(date):
    headers = {} if date is None else {"date": date}
    assert clock_ahead({"ResponseMetadata": {"HTTPHeaders": headers}}, NOW) is None
    assert clock_ahead({}, NOW) is None


def test_a_region_that_the_sdk_does_not_know_is_what_is_wrong_when_nothing_is_there():
    gone = sdk.EndpointConnectionError(endpoint_url="https://ec2.eu-wst-1.amazonaws.com")
    text = told(gone, Place("eu-wst-1", regions=("us-east-1", "eu-west-1")))
    assert "the SDK knows no such region; correct `region`; did you mean eu-west-1?" in text
    assert told(gone, Place("moon", regions=("eu-west-1",))).endswith("correct `region`")
    assert "look at the network" in told(gone, PLACE)
    assert "look at the network" in told(gone, Place("eu-wst-1", "http://here", regions=("eu-west-1",)))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (sdk.UnauthorizedSSOTokenError(), "run `aws sso login --profile night`"),
        (sdk.TokenRetrievalError(provider="sso", error_msg="SECRET"), "run `aws sso login"),
        (sdk.CredentialRetrievalError(provider="p", error_msg="SECRET"), "no credentials from where the profile"),
        (sdk.ReadTimeoutError(endpoint_url="https://x"), "cannot be reached (ReadTimeoutError)"),
        (sdk.SSLError(endpoint_url="https://x", error="bad"), "cannot be reached (SSLError)"),
        (sdk.ProxyConnectionError(proxy_url="http://me:SECRET@proxy"), "cannot be reached (ProxyConnectionError)"),
        (ValueError("SECRET in an answer"), "cut, or not EC2's (ValueError)"),
        (sdk.ClientError({}, "DescribeInstances"), "is refused"),
        (refusal("Odd\nCode", "two\nlines\x1b[0m " + "x" * 5000), "Odd Code: two lines"),
    ],
)
def test_every_error_is_one_short_line_without_a_secret(error, words):
    text = told(error)
    assert words in text
    assert "SECRET" not in text
    assert text.isprintable()
    assert len(text) < 2 * TOLD_CHARACTERS
