"""What the answers of an API are worth, on a virtual clock."""

from __future__ import annotations

from itertools import pairwise

import httpx
import pytest
import trio
from gpucloud_double import TOKEN
from gpucloud_kit import CASES, client, get
from scavenge_gpucloud.client import MOST_BYTES
from scavenge_gpucloud.clouds import RUNPOD
from scavenge_gpucloud.pace import Pace
from scavenge_gpucloud.source import CloudSource

from scavenge.plugin import SourceError


def scripted(*answers):
    """A handler that gives these answers one after the other, the last for ever, and notes when it was asked."""
    asked = []

    def handler(request):
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(trio.current_time())
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    return handler, asked


def reply(status=200, **keys):
    return lambda: httpx.Response(status, **({"json": []} if status == 200 and not keys else keys))


async def test_an_answer_is_its_json(autojump_clock):
    handler, asked = scripted(reply(json={"data": [1]}))
    assert await get(client(handler), limit="3") == {"data": [1]}
    assert len(asked) == 1


async def test_requests_carry_the_key_and_the_query_and_keep_a_distance(autojump_clock):
    seen = []

    def handler(request):
        seen.append((str(request.url), request.headers["authorization"], trio.current_time()))
        return httpx.Response(200, json=[])

    api = client(handler, Pace(page_gap_s=0.5))
    await get(api, "api/v1/pods/", offset="0")
    await get(api, "api/v1/pods/", offset="9")
    assert [url for url, _, _ in seen] == [f"https://api.example.com/api/v1/pods/?offset={n}" for n in (0, 9)]
    assert seen[0][1] == f"Bearer {TOKEN}"
    assert seen[1][2] - seen[0][2] == pytest.approx(0.5)


async def test_a_cloud_that_says_when_to_come_back_is_left_alone_until_then(autojump_clock):
    handler, asked = scripted(reply(429, headers={"Retry-After": "7"}), reply())
    assert await get(client(handler)) == []
    assert 7.0 <= asked[1] - asked[0] <= 8.0


@pytest.mark.parametrize(
    "first", [reply(429), reply(503), reply(500), httpx.ConnectError("refused"), reply(text="<html>")]
)
async def test_what_may_pass_is_tried_again_after_a_pause(autojump_clock, first):
    handler, asked = scripted(first, first, reply())
    assert await get(client(handler)) == []
    assert 0.5 <= asked[1] - asked[0] <= 1.0
    assert 1.0 <= asked[2] - asked[1] <= 2.0


@pytest.mark.parametrize(
    ("answer", "tries", "words"),
    [
        (reply(429, text=f"slow down {TOKEN}"), 5, ["429", "elastic_poll_interval"]),
        (reply(502), 5, ["502"]),
        (httpx.ConnectError(f"no route with {TOKEN}"), 5, ["cannot be reached (ConnectError)"]),
        (httpx.ReadError("reset"), 5, ["ReadError"]),
        (httpx.RemoteProtocolError("cut"), 5, ["RemoteProtocolError"]),
        (reply(text="<html>maintenance</html>"), 5, ["no JSON"]),
        (reply(content=b""), 5, ["no JSON"]),
        (reply(content=b"\xff\xfe\x00"), 5, ["no JSON"]),
        (reply(content=b"[" * 100_000), 5, ["no JSON"]),
        (reply(content=b"[" + b"9" * 5000 + b"]"), 5, ["no JSON"]),
        (reply(401, text=TOKEN), 1, ["refuses the API key in KEY (401)", "may read instances"]),
        (reply(403), 1, ["refuses the API key in KEY (403)"]),
        (reply(301, headers={"Location": "https://evil.example.com"}), 1, ["elsewhere (301)", "api_url"]),
        (reply(404), 1, ["404", "api_url"]),
        (reply(204), 1, ["204"]),
        (reply(content=b"x" * (MOST_BYTES + 1)), 1, ["more than 16 MB"]),
    ],
)
async def test_what_is_no_answer_is_an_error_of_one_line_that_shows_no_secret(autojump_clock, answer, tries, words):
    handler, asked = scripted(answer)
    with pytest.raises(SourceError) as raised:
        await get(client(handler))
    text = str(raised.value)
    assert text.startswith("Cloud at https://api.example.com: ")
    assert all(word in text for word in words)
    assert "\n" not in text
    assert TOKEN not in text
    assert TOKEN not in repr(raised.value.__cause__)
    assert len(asked) == tries


async def test_a_wish_longer_than_the_caller_can_wait_is_an_error_at_once_and_holds_for_the_next_caller(autojump_clock):
    handler, asked = scripted(reply(429, headers={"Retry-After": "300"}), reply())
    api = client(handler)
    for _ in range(2):
        with trio.fail_after(45), pytest.raises(SourceError, match=r"429.*left alone for 30[01] s"):
            await get(api)
        assert trio.current_time() == asked[0]
    await trio.sleep(302)
    with trio.fail_after(45):
        assert await get(api) == []
    assert len(asked) == 2


async def test_a_cloud_that_does_not_answer_is_given_up_within_the_time_that_a_listing_has(autojump_clock):
    async def handler(request):
        await trio.sleep_forever()

    began = trio.current_time()
    with pytest.raises(SourceError, match="no whole list within 45 s: no answer within 20 s"):
        await CloudSource(RUNPOD, CASES["runpod"].template(), client(handler)).list_endpoints()
    assert trio.current_time() - began == pytest.approx(45.0)


async def test_a_cloud_that_fails_for_long_is_told_of_by_its_failure(autojump_clock):
    handler, asked = scripted(reply(503, headers={"Retry-After": "20"}))
    source = CloudSource(RUNPOD, CASES["runpod"].template(), client(handler))
    with pytest.raises(SourceError, match=r"it answers 503; it is left alone for 2[01] s"):
        await source.list_endpoints()
    assert len(asked) == 3


async def test_lists_keep_a_distance_however_often_they_are_asked_for(autojump_clock):
    handler, asked = scripted(reply())
    source = CloudSource(RUNPOD, CASES["runpod"].template(), client(handler))
    for _ in range(5):
        await source.list_endpoints()
    assert [round(late - early, 6) for early, late in pairwise(asked)] == [2.0] * 4


async def test_after_a_refusal_the_cloud_is_not_asked_again_at_once(autojump_clock):
    handler, asked = scripted(reply(401), reply())
    api = client(handler)
    with pytest.raises(SourceError):
        await get(api)
    await get(api)
    assert asked[1] - asked[0] >= 0.5


async def test_a_shorter_pause_never_ends_a_longer_one(autojump_clock):
    handler, asked = scripted(reply())
    api = client(handler)
    api.leave_alone(10.0)
    api.leave_alone(1.0)
    began = trio.current_time()
    await get(api)
    assert asked[0] - began == pytest.approx(10.0)


def test_a_representation_shows_no_key():
    assert TOKEN not in repr(client(lambda request: httpx.Response(200)))
