"""The source against a small API on loopback: what it lists, when it answers, what it asks."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kube_kit import conditions, endpoint, endpoint_slice, open_source, pod, urls, write_kubeconfig

from scavenge.plugin import SourceError

A, B, C = (f"http://10.0.0.{i}:8000/v1" for i in (1, 2, 3))


@pytest.fixture
async def source(kube, tmp_path):
    async with open_source(write_kubeconfig(tmp_path, kube.url)) as opened:
        yield opened


def watched(kube):
    """Wait until the source watches."""
    return kube.wait_until(lambda: kube.watching)


async def next_urls(source, kube, act, **which):
    """What is listed after *act*, which comes while the source holds its answer."""
    found = []

    async def listen():
        found.extend(urls(await source.list_endpoints(), **which))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await watched(kube)
        act()
    return found


async def test_the_first_answer_lists_the_ready_pods_that_the_selector_takes(source, kube):
    kube.store.put("pods", pod("starting", "10.0.0.3", ready=False))
    kube.store.put("pods", pod("other", "10.0.0.4", labels={"app": "web"}))
    kube.store.put("pods", pod("elsewhere", "10.0.0.5", namespace="default"))
    assert urls(await source.list_endpoints()) == [A, B]
    assert kube.verbs() == ["list"]


async def test_all_namespaces_are_asked_at_once(kube, tmp_path):
    kube.store.put("pods", pod("elsewhere", "10.0.0.3", namespace="default"))
    async with open_source(write_kubeconfig(tmp_path, kube.url), namespace="*") as source:
        assert urls(await source.list_endpoints()) == [C, A, B]


async def test_no_pod_at_all_is_a_listing_without_any(source, kube):
    for name in "ab":
        kube.store.delete("pods", "ml", name)
    assert urls(await source.list_endpoints()) == []


async def test_a_list_of_many_pages_is_whole(source, kube, monkeypatch):
    monkeypatch.setattr("scavenge_kubernetes.api.PAGE", 3)
    for number in range(3, 11):
        kube.store.put("pods", pod(f"p{number}", f"10.0.0.{number}"))
    assert len(urls(await source.list_endpoints())) == 10
    assert kube.verbs() == ["list"] * 4


async def test_pages_that_are_too_old_for_their_next_are_asked_for_again(source, kube, monkeypatch):
    monkeypatch.setattr("scavenge_kubernetes.api.PAGE", 1)
    kube.store.stale_tokens = 1
    assert urls(await source.list_endpoints()) == [A, B]


async def test_a_new_pod_is_listed_as_soon_as_it_is_ready(source, kube):
    await source.list_endpoints()
    kube.store.put("pods", pod("c", "10.0.0.3", ready=False))

    def act():
        kube.store.edit("pods", "ml", "c", status=conditions(Ready=True))

    assert await next_urls(source, kube, act) == [A, B, C]


async def test_a_pod_that_is_deleted_drains_and_then_is_gone(source, kube):
    await source.list_endpoints()
    stamp = {"deletionTimestamp": "2030-01-01T00:00:30Z"}
    assert await next_urls(source, kube, lambda: kube.store.edit("pods", "ml", "a", metadata=stamp), draining=True) == [
        A
    ]
    assert await next_urls(source, kube, lambda: kube.store.delete("pods", "ml", "a")) == [B]


async def test_a_pod_that_is_not_ready_any_more_drains(source, kube):
    await source.list_endpoints()

    def act():
        kube.store.edit("pods", "ml", "a", status=conditions(Ready=False))

    assert await next_urls(source, kube, act, draining=True) == [A]


async def test_a_pod_that_loses_the_label_is_gone(source, kube):
    await source.list_endpoints()

    def act():
        kube.store.edit("pods", "ml", "a", metadata={"labels": {}})

    assert await next_urls(source, kube, act) == [B]


async def test_a_change_that_makes_no_other_row_wakes_nobody(source, kube):
    await source.list_endpoints()

    def act():
        kube.store.edit("pods", "ml", "a", status={"message": "still here"})
        kube.store.delete("pods", "ml", "b")

    assert await next_urls(source, kube, act) == [A]
    assert kube.verbs() == ["list", "watch"]


async def test_what_changed_between_two_answers_is_told_at_once_and_without_a_list(source, kube):
    await source.list_endpoints()
    kube.store.delete("pods", "ml", "a")
    assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch"]


async def test_a_listing_that_lacks_a_server_is_followed_at_once_by_one_from_a_list(source, kube):
    await source.list_endpoints()
    kube.store.delete("pods", "ml", "a")
    for _ in range(2):
        assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch", "list"]
    assert await next_urls(source, kube, lambda: kube.store.put("pods", pod("c", "10.0.0.3"))) == [B, C]


async def test_the_endpoints_of_slices_are_listed_and_followed(kube, tmp_path):
    kube.store.put("endpointslices", endpoint_slice("s", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", ready=False)))
    keys = {"resource": "endpointslices", "selector": "kubernetes.io/service-name=vllm"}
    async with open_source(write_kubeconfig(tmp_path, kube.url), **keys) as source:
        assert urls(await source.list_endpoints()) == [A]
        leaving = endpoint("10.0.0.1", "a", ready=False, serving=True, terminating=True)

        def act():
            kube.store.edit("endpointslices", "ml", "s", endpoints=[leaving])

        assert await next_urls(source, kube, act, draining=True) == [A]


# --- a watch that ends, is silent, or is too old


async def test_a_watch_that_is_cut_is_resumed_where_it_was(source, kube):
    await source.list_endpoints()

    async def cut_and_change():
        await watched(kube)
        kube.cut_watches()
        kube.store.delete("pods", "ml", "a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_and_change)
        assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch", "watch"]
    first, second = (asked["resourceVersion"] for verb, asked, _ in kube.asked if verb == "watch")
    assert first == second


async def test_watches_that_end_after_they_told_something_are_resumed_again_and_again(source, kube):
    await source.list_endpoints()

    async def meddle():
        for number in range(1, 5):
            await kube.wait_until(lambda number=number: kube.watching and kube.verbs().count("watch") == number)
            kube.store.edit("pods", "ml", "a", status={"message": f"turn {number}"})
            await kube.wait_until(lambda number=number: kube.told == number)
            kube.cut_watches()
        kube.store.delete("pods", "ml", "a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(meddle)
        assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list"] + ["watch"] * 5


async def test_a_watch_is_resumed_after_the_bookmark_that_it_has_seen(source, kube):
    kube.bookmark_s = 0.01
    await source.list_endpoints()
    kube.store.put("pods", pod("other", labels={"app": "web"}))
    version = kube.store.version

    async def cut_and_change():
        await watched(kube)
        await kube.wait_until(lambda: kube.told)
        kube.cut_watches()
        kube.store.delete("pods", "ml", "a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_and_change)
        await source.list_endpoints()
    assert [asked["resourceVersion"] for verb, asked, _ in kube.asked if verb == "watch"][-1] == str(version)


async def test_a_version_that_is_too_old_is_followed_by_a_list(source, kube):
    await source.list_endpoints()
    kube.store.delete("pods", "ml", "a")
    kube.store.forget()
    assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch", "list"]


async def test_a_watch_that_does_not_begin_is_followed_by_a_list(source, kube, monkeypatch):
    await source.list_endpoints()
    monkeypatch.setattr("scavenge_kubernetes.api.PAGE_WITHIN_S", 0.5)
    async with kube.broken("hang", "watch"):
        monkeypatch.setattr("scavenge_kubernetes.source.PAUSE_S", 0.0)
        with trio.move_on_after(5):
            await source.list_endpoints()
    assert kube.verbs()[:4] == ["list", "watch", "watch", "list"]


@pytest.mark.parametrize("kind", ["ended", "html", "half", "cut", "slam", "500", "429"])
async def test_watches_that_tell_nothing_are_followed_by_a_list(source, kube, kind):
    await source.list_endpoints()
    async with kube.broken(kind, "watch"):
        assert urls(await source.list_endpoints()) == [A, B]
    assert kube.verbs() == ["list", "watch", "watch", "list"]


async def test_what_a_watch_told_before_it_ended_in_nonsense_is_not_forgotten(source, kube):
    await source.list_endpoints()
    kube.store.delete("pods", "ml", "a")
    async with kube.broken("nonsense", "watch"):
        assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch"]


async def test_a_watch_that_is_silent_is_believed_for_the_relist_interval_only(kube, tmp_path):
    async with open_source(write_kubeconfig(tmp_path, kube.url), relist_interval=1) as source:
        await source.list_endpoints()
        async with kube.broken("mute", "watch"):
            kube.store.delete("pods", "ml", "a")
            assert urls(await source.list_endpoints()) == [B]
    assert kube.verbs() == ["list", "watch", "list"]


async def test_the_api_is_asked_to_end_a_watch_soon_after_nobody_listens(source, kube):
    await source.list_endpoints()
    kube.store.delete("pods", "ml", "a")
    await source.list_endpoints()
    (watch,) = [asked for verb, asked, _ in kube.asked if verb == "watch"]
    assert (watch["timeoutSeconds"], watch["allowWatchBookmarks"], watch["labelSelector"]) == (
        "130",
        "true",
        "app=vllm",
    )


async def test_a_watch_that_is_forbidden_is_told_while_the_list_stays(source, kube):
    kube.denied.add(("watch", "pods"))
    await source.list_endpoints()
    with pytest.raises(SourceError, match='"list" and "watch" on the resource "pods"'):
        await source.list_endpoints()


# --- cancellation


async def test_an_answer_that_is_cancelled_leaves_no_connection_and_nothing_unheard(source, kube):
    await source.list_endpoints()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.list_endpoints)
        await watched(kube)
        nursery.cancel_scope.cancel()
    await kube.wait_until(lambda: not kube.watching)
    kube.store.delete("pods", "ml", "a")
    assert urls(await source.list_endpoints()) == [B]


async def test_a_list_that_is_cancelled_is_asked_for_again(source, kube):
    async with kube.broken("hang"), trio.open_nursery() as nursery:
        nursery.start_soon(source.list_endpoints)
        await kube.wait_until(lambda: kube.asked)
        nursery.cancel_scope.cancel()
    assert urls(await source.list_endpoints()) == [A, B]
