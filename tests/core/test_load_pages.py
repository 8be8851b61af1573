"""Which page of a server is read for its figures."""

from __future__ import annotations

import pytest

from scavenge.core.loadpages import LoadPages, Page

ALL = tuple(Page)


def test_all_pages_are_tried_until_one_has_figures_and_then_only_that() -> None:
    pages = LoadPages()
    assert pages.to_read(0) == ALL
    pages.on_figures(Page.SLOTS)
    assert pages.to_read(0.1) == (Page.SLOTS,)
    assert pages.to_read(5) == (Page.SLOTS,)


def test_a_server_without_figures_is_left_alone_for_twice_as_long_each_time_up_to_an_hour() -> None:
    pages, now, rests = LoadPages(), 0, []
    assert pages.to_read(now) == ALL
    for _ in range(8):
        pages.on_nothing(now, 404)
        since, now = now, next(at for at in range(now, now + 4000) if pages.to_read(at))
        rests.append(now - since)
    assert rests == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_the_known_page_stays_known_while_the_server_is_only_busy() -> None:
    pages = LoadPages()
    pages.on_figures(Page.METRICS)
    for status in (429, 500, 503):
        pages.on_nothing(1, status)
        assert pages.to_read(1) == (Page.METRICS,)


@pytest.mark.parametrize("status", [200, 302, 401, 404, 501])
def test_a_known_page_that_is_gone_is_looked_for_at_once(status: int) -> None:
    pages = LoadPages()
    pages.on_figures(Page.METRICS)
    pages.on_nothing(1, status)
    assert pages.to_read(1) == ALL


def test_a_server_that_was_gone_may_be_another() -> None:
    pages = LoadPages()
    pages.on_figures(Page.METRICS)
    pages.forget()
    assert pages.to_read(0) == ALL
    pages.on_nothing(0, 404)
    assert pages.to_read(1) == ()
    pages.forget()
    assert pages.to_read(1) == ALL


def test_who_gives_up_while_trying_has_tried_for_a_minute() -> None:
    pages = LoadPages()
    assert pages.to_read(0) == ALL
    assert pages.to_read(59) == ()
    assert pages.to_read(60) == ALL


def test_of_a_hosted_service_only_the_usual_page_is_asked_for() -> None:
    assert LoadPages(hosted=True).to_read(0) == (Page.METRICS,)
