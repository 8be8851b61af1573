"""Lists and watches as a view takes them, without a cluster."""

from __future__ import annotations

import pytest
from kube_kit import pod
from scavenge_kubernetes.lines import Lines
from scavenge_kubernetes.view import Expired, NoAnswer, View, decoded


def page(*items, kind="PodList", version="9", token=None):
    return {"kind": kind, "metadata": {"resourceVersion": version, "continue": token}, "items": list(items)}


def view(*items):
    made = View("Pod", lambda item: item["status"])
    made.take_page(page(*items))
    return made


def event(kind, item, version="10"):
    return {"type": kind, "object": {**item, "metadata": {**item["metadata"], "resourceVersion": version}}}


def test_pages_add_up_and_the_last_has_no_token():
    made = View("Pod", dict)
    assert made.take_page(page(pod("a"), token="next")) == "next"
    assert made.take_page(page(pod("b"))) == ""
    assert [name for _, name in made.objects] == ["a", "b"]
    assert made.version == "9"


@pytest.mark.parametrize(
    "wrong",
    [
        page(kind="ServiceList"),
        page(kind="Status"),
        page(version=""),
        page(version=9),
        page("pod"),
        page({"metadata": {}}),
        page({"metadata": 7}),
        page(token=7),
        {**page(), "items": None},
        {**page(), "items": {}},
        {**page(), "metadata": None},
        {},
    ],
    ids=repr,
)
def test_what_is_no_list_of_the_kind_is_no_answer(wrong):
    with pytest.raises(NoAnswer):
        View("Pod", dict).take_page(wrong)


def test_a_list_of_far_too_many_objects_is_no_answer(monkeypatch):
    monkeypatch.setattr("scavenge_kubernetes.view.MAX_OBJECTS", 2)
    made = view(pod("a"), pod("b"))
    with pytest.raises(NoAnswer, match="narrow the selector"):
        made.take_page(page(pod("c")))


def test_events_add_change_and_remove_and_say_whether_what_is_kept_changed():
    made = view(pod("a"))
    assert made.take_event(event("ADDED", pod("b"), "11")) is True
    assert made.take_event(event("MODIFIED", pod("b"), "12")) is False
    assert made.take_event(event("MODIFIED", pod("b", ready=False), "13")) is True
    assert made.take_event(event("DELETED", pod("a"), "14")) is True
    assert made.take_event(event("DELETED", pod("a"), "15")) is False
    assert [name for _, name in made.objects] == ["b"]
    assert made.version == "15"


def test_a_bookmark_moves_the_version_on_and_nothing_else():
    made = view(pod("a"))
    assert made.take_event({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}}) is False
    assert (made.version, len(made.objects)) == ("77", 1)


@pytest.mark.parametrize("status", [{"code": 410}, {"reason": "Expired"}, {"reason": "Gone", "code": 7}])
def test_an_error_that_says_gone_means_that_the_version_is_too_old(status):
    made = view(pod("a"))
    with pytest.raises(Expired):
        made.take_event({"type": "ERROR", "object": status})
    assert made.version == "9"


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "ERROR", "object": {"code": 500, "message": "etcd lost its leader"}},
        {"type": "ADDED", "object": None},
        {"type": "ADDED", "object": {"metadata": {}}},
        {"type": "ADDED", "object": {"metadata": {"resourceVersion": "3"}}},
        {"type": "RENAMED", "object": {"metadata": {"resourceVersion": "3", "name": "a", "namespace": "ml"}}},
        {"object": {"metadata": {"resourceVersion": "3"}}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": None}}},
        {},
    ],
    ids=repr,
)
def test_what_is_no_event_changes_nothing(wrong):
    made = view(pod("a"))
    with pytest.raises(NoAnswer):
        made.take_event(wrong)
    assert (made.version, len(made.objects)) == ("9", 1)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 100_000, b"<html>"])
def test_what_is_no_json_object_is_no_answer(data):
    with pytest.raises(NoAnswer):
        decoded(data)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_whole_however_the_stream_is_cut(size):
    data, lines = b'{"a": 1}\n\n{"b": 2}\r\n{"c"', Lines(100)
    found = [line for i in range(0, len(data), size) for line in lines.feed(data[i : i + size])]
    assert [line.strip() for line in found] == [b'{"a": 1}', b'{"b": 2}']


def test_a_line_that_does_not_end_is_no_answer():
    lines = Lines(10)
    lines.feed(b"xxxxx")
    lines.feed(b"xxxxx")
    with pytest.raises(NoAnswer, match="longer than 10 bytes"):
        lines.feed(b"x")
