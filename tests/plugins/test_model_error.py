"""What a plugin's foreign client was told by the gateway, as the error that ``model.chat`` raises."""

from __future__ import annotations

import pytest

from scavenge.calls import Relayed
from scavenge.core.doorwords import error_body, refusal_body, reply_body
from scavenge.errors import PoisonRequest, UnknownSession, UsageError
from scavenge.plugin import model_error
from scavenge.types import Attempt, Busy, Misrouted, Rejected, Reply, RequestFailed

ATTEMPT = Attempt("http://ep1/v1", "busy", 1.0, 0.5, http_status=503, message="full")


@pytest.mark.parametrize(
    "outcome",
    [Busy("full", 503), Misrouted("no such key", 401), Rejected("too long", 400, context_length=True)],
)
def test_a_request_that_failed_is_the_same_error_as_with_chat(outcome):
    raised = model_error(*error_body(RequestFailed(outcome, [ATTEMPT])))
    assert isinstance(raised, RequestFailed)
    assert (raised.outcome, raised.attempts) == (outcome, (ATTEMPT,))


@pytest.mark.parametrize("error", [PoisonRequest("lost 20 times"), UnknownSession("over"), UsageError("no messages")])
def test_so_is_every_other_error_of_chat(error):
    raised = model_error(*error_body(error))
    assert type(raised) is type(error)
    assert str(raised) == str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", refusal_body("bad token", code="unauthorized")])
def test_a_reply_of_anybody_else_is_a_failed_request(body):
    assert isinstance(model_error(502, body), RequestFailed)


def test_a_completion_is_no_error():
    with pytest.raises(ValueError, match="with a completion is no error"):
        model_error(200, reply_body(Relayed(Reply("hello", "stop"))))
