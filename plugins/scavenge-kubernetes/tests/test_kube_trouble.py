"""What the source says when the API cannot, will not, or does not know."""

from __future__ import annotations

import httpx
import pytest
import trio
from kube_kit import config, open_source, urls, write_kubeconfig
from scavenge_kubernetes import api
from scavenge_kubernetes.access import Access

from scavenge.plugin import SourceError

A, B = (f"http://10.0.0.{i}:8000/v1" for i in (1, 2))
NO_LISTINGS = ["slam", "cut", "half", "html", "null", "unversioned", "deep", "circle", "ended", "500", "503", "302"]


@pytest.fixture
async def source(kube, tmp_path):
    async with open_source(write_kubeconfig(tmp_path, kube.url)) as opened:
        yield opened


async def trouble_of(source):
    """What the source raises, which is one line."""
    with pytest.raises(SourceError) as caught:
        await source.list_endpoints()
    text = str(caught.value)
    assert text.isprintable()
    return text


def no_sleep(slept):
    """Notes how long it should have slept."""

    async def sleep(seconds):
        slept.append(seconds)
        await trio.lowlevel.checkpoint()

    return sleep


@pytest.mark.parametrize("kind", NO_LISTINGS)
async def test_what_is_no_list_is_tried_thrice_and_told_with_its_place(source, kube, kind):
    async with kube.broken(kind):
        assert f"pods in the namespace ml of {kube.url}: " in await trouble_of(source)
    assert set(kube.verbs()) == {"list"}
    assert len(kube.verbs()) >= 3
    assert urls(await source.list_endpoints()) == [A, B]


async def test_an_api_that_is_down_for_a_moment_is_tried_again_without_a_word(source, kube):
    async with kube.broken("503"), trio.open_nursery() as nursery:

        async def mend():
            await kube.wait_until(lambda: kube.asked)
            kube.fault = None

        nursery.start_soon(mend)
        assert urls(await source.list_endpoints()) == [A, B]


async def test_an_answer_without_end_is_given_up(source, kube, monkeypatch):
    monkeypatch.setattr(api, "MAX_PAGE_BYTES", 1 << 20)
    async with kube.broken("endless", "list"):
        assert "more than 1048576 bytes" in await trouble_of(source)


async def test_an_event_without_end_is_followed_by_a_list(source, kube, monkeypatch):
    await source.list_endpoints()
    monkeypatch.setattr(api, "MAX_EVENT_BYTES", 1 << 20)
    async with kube.broken("endless", "watch"):
        assert urls(await source.list_endpoints()) == [A, B]


async def test_an_api_that_hangs_is_told_in_time(source, kube, monkeypatch):
    monkeypatch.setattr(api, "PAGE_WITHIN_S", 0.05)
    async with kube.broken("hang"):
        assert "no answer within 0.05 s" in await trouble_of(source)


async def test_an_api_that_is_not_there_is_told(source, kube, tmp_path):
    write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    assert "127.0.0.1:9: ConnectError" in await trouble_of(source)


async def test_a_pause_that_the_api_asks_for_is_kept_within_bounds(source, kube, monkeypatch):
    slept = []
    monkeypatch.setattr(trio, "sleep", no_sleep(slept))
    async with kube.broken("429", Retry_After="7"):
        await trouble_of(source)
    assert slept == [7.0, 7.0]
    assert source._not_before > trio.current_time() + 5
    source._not_before = 0.0
    async with kube.broken("429", Retry_After="86400"):
        await trouble_of(source)
    assert slept[2:] == [15.0, 15.0]


async def test_after_failures_the_api_is_asked_with_growing_pauses(source, kube, monkeypatch):
    monkeypatch.setattr("scavenge_kubernetes.source.PAUSE_S", 1.0)
    monkeypatch.setattr(trio, "sleep", no_sleep([]))
    starts_at = trio.current_time()
    async with kube.broken("500"):
        for number in range(4):
            await trouble_of(source)
            assert source._not_before > starts_at + 0.5 * 2**number
            source._not_before = 0.0
    await source.list_endpoints()
    async with kube.broken("500"):
        source._view = None
        await trouble_of(source)
        assert source._not_before < trio.current_time() + 2


async def test_forbidden_says_which_verbs_on_which_resource_are_needed(source, kube):
    kube.denied.add(("list", "pods"))
    text = await trouble_of(source)
    assert 'forbidden (403) for the context "test"' in text
    assert 'it needs a Role with the verbs "list" and "watch" on the resource "pods" of the API group ""' in text
    assert 'User "tester" cannot list resource' in text
    assert kube.verbs() == ["list"]


async def test_forbidden_in_all_namespaces_needs_a_cluster_role(kube, tmp_path):
    kube.denied.add(("list", "endpointslices"))
    keys = {"resource": "endpointslices", "namespace": "*"}
    async with open_source(write_kubeconfig(tmp_path, kube.url), **keys) as source:
        text = await trouble_of(source)
    assert 'a ClusterRole with the verbs "list" and "watch" on the resource "endpointslices"' in text
    assert 'of the API group "discovery.k8s.io"' in text


@pytest.mark.parametrize(("status", "words"), [("404", "not there (404)"), ("400", "correct the selector")])
async def test_what_the_api_does_not_take_is_told_once(source, kube, status, words):
    async with kube.broken(status):
        assert words in await trouble_of(source)
    assert kube.verbs() == ["list"]


async def test_credentials_that_are_refused_are_read_anew_once(kube, tmp_path):
    kube.tokens = {"new-token"}
    path = write_kubeconfig(tmp_path, kube.url, {"token": "old-token"})
    async with open_source(path) as source:
        text = await trouble_of(source)
        assert "refused (401)" in text
        assert "old-token" not in text
        assert kube.verbs() == ["list", "list"]
        write_kubeconfig(tmp_path, kube.url, {"token": "new-token"})
        assert urls(await source.list_endpoints()) == [A, B]


@pytest.mark.parametrize("before", [0, 190])
async def test_a_refusal_that_repeats_the_token_shows_nothing_of_it(before):
    headers = {"Authorization": "Bearer secret-token"}
    access = Access("https://k", headers, tls=False, server_name=None, proxy=None, namespace="ml", origin="here")
    refusal = httpx.Response(403, json={"message": f"{'x' * before} secret-token"})
    with pytest.raises(api.Refused) as caught:
        await api.Api(access, config())._check(refusal)
    assert "it says: " in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_token_that_is_over_under_a_watch_is_read_anew_without_a_word(kube, tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    kube.tokens = {"first"}
    async with open_source(write_kubeconfig(tmp_path, kube.url, {"tokenFile": "token"})) as source:
        await source.list_endpoints()
        kube.tokens = {"second"}
        token.write_text("second\n")
        kube.store.delete("pods", "ml", "a")
        assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch", "watch"]


async def test_a_pod_of_nonsense_costs_itself_only(source, kube):
    kube.store.put("pods", {"metadata": {"name": "n", "namespace": "ml", "labels": {"app": "vllm"}}, "spec": 7})
    assert urls(await source.list_endpoints()) == [A, B]
