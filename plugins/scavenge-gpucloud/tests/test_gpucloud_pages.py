"""A list is whole, or it is none."""

from __future__ import annotations

import pytest
from scavenge_gpucloud.pages import CursorPages, Moved, OffsetPages, Unclear, WholeList


def items(*numbers):
    return [{"id": number} for number in numbers]


def ids(pages):
    return [item["id"] for item in pages.items]


def offset_page(total, *numbers):
    return {"data": items(*numbers), "total_count": total}


def cursor_page(token, *numbers, total=None):
    return {"instances": items(*numbers), "next_token": token, "total_instances": total}


def test_a_list_in_one_answer_is_whole_at_once():
    pages = WholeList()
    assert pages.query() == {}
    assert not pages.whole
    pages.take(items("a", "b"))
    assert ids(pages) == ["a", "b"]
    assert pages.whole


@pytest.mark.parametrize("answer", [None, {}, {"error": "x"}, "[]", 3, [3], [None], [{}], [{"id": ""}], [{"id": True}]])
def test_what_is_no_list_of_instances_is_not_understood(answer):
    with pytest.raises(Unclear):
        WholeList().take(answer)


def test_a_list_that_is_far_too_long_is_refused():
    with pytest.raises(Unclear, match="more than 10000"):
        WholeList().take(items(*range(10_001)))


# --- by token


def test_pages_follow_each_other_by_token_until_there_is_none():
    pages = CursorPages()
    assert "after_token" not in pages.query()
    pages.take(cursor_page("t1", 1, 2, total=3))
    assert not pages.whole
    assert pages.query()["after_token"] == "t1"
    pages.take(cursor_page(None, 3, total=3))
    assert pages.whole
    assert ids(pages) == [1, 2, 3]


def test_an_empty_token_is_the_end():
    pages = CursorPages()
    pages.take(cursor_page("", 1))
    assert pages.whole


def test_a_token_that_leads_back_is_refused_instead_of_followed_for_ever():
    pages = CursorPages()
    pages.take(cursor_page("t1", 1))
    pages.take(cursor_page("t2", 2))
    with pytest.raises(Unclear, match="leads back"):
        pages.take(cursor_page("t1", 1))


def test_tokens_without_an_end_are_refused():
    pages = CursorPages()
    for number in range(199):
        pages.take(cursor_page(f"t{number}", number))
    with pytest.raises(Unclear, match="no end after 200 pages"):
        pages.take(cursor_page("t199", 199))


def test_a_page_that_was_cut_short_makes_no_whole_list():
    pages = CursorPages()
    pages.take(cursor_page("t1", 1, 2, total=4))
    with pytest.raises(Moved, match="3 of 4"):
        pages.take(cursor_page(None, 3, total=4))


def test_an_empty_page_where_there_are_instances_is_no_empty_list():
    with pytest.raises(Moved, match="0 of 4"):
        CursorPages().take(cursor_page(None, total=4))


def test_an_instance_that_went_while_the_pages_were_read_does_no_harm():
    pages = CursorPages()
    pages.take(cursor_page("t1", 1, 2, total=3))
    pages.take(cursor_page(None, 3, total=2))
    assert pages.whole


def test_an_instance_on_two_pages_is_one_and_the_later_word_holds():
    pages = CursorPages()
    pages.take({"instances": [{"id": 1, "label": "old"}], "next_token": "t"})
    pages.take({"instances": [{"id": 1, "label": "new"}], "next_token": None})
    assert pages.items == [{"id": 1, "label": "new"}]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        None,
        {},
        {"instances": None, "next_token": None},
        {"instances": {}, "next_token": None},
        {"instances": [], "next_token": 7},
        {"success": False, "error": "auth", "msg": "no", "instances": []},
    ],
)
def test_a_page_of_another_form_is_not_understood(answer):
    with pytest.raises(Unclear):
        CursorPages().take(answer)


# --- by offset


def test_each_page_begins_with_the_last_instance_of_the_page_before():
    pages = OffsetPages(limit=3)
    assert pages.query() == {"offset": "0", "limit": "3"}
    pages.take(offset_page(5, "a", "b", "c"))
    assert not pages.whole
    assert pages.query() == {"offset": "2", "limit": "3"}
    pages.take(offset_page(5, "c", "d", "e"))
    assert pages.whole
    assert ids(pages) == ["a", "b", "c", "d", "e"]


def test_an_account_without_instances_has_an_empty_list():
    pages = OffsetPages()
    pages.take(offset_page(0))
    assert pages.whole
    assert ids(pages) == []


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (offset_page(4, "d", "e"), "5 instances became 4"),  # one went: all behind it moved up
        (offset_page(5, "d", "e", "f"), "does not begin where"),  # one went and one came at the end
        (offset_page(5, "b", "c", "d"), "does not begin where"),  # one came at the top and one went at the end
        (offset_page(5), "does not begin where"),
        (offset_page(5, "c"), "3 of 5"),  # nothing new: it would be asked for ever
        (offset_page(5, "c", "a", "b"), "5 instances came"),  # shuffled
        (offset_page(5, "c", "d", "e", "f"), "6 instances came"),
    ],
)
def test_a_list_that_moved_between_two_pages_is_none(second, why):
    pages = OffsetPages(limit=3)
    pages.take(offset_page(5, "a", "b", "c"))
    with pytest.raises(Moved, match=why):
        pages.take(second)


def test_an_empty_first_page_where_there_are_instances_is_no_empty_list_either():
    with pytest.raises(Moved, match="0 of 2"):
        OffsetPages().take(offset_page(2))


def test_a_cloud_that_gives_less_than_was_asked_for_is_followed_to_the_end():
    pages = OffsetPages(limit=100)
    pages.take(offset_page(4, "a", "b"))
    assert pages.query() == {"offset": "1", "limit": "100"}
    pages.take(offset_page(4, "b", "c"))
    pages.take(offset_page(4, "c", "d"))
    assert pages.whole


@pytest.mark.parametrize("total", [None, "5", 1.5, -1, True])
def test_a_page_that_does_not_say_how_many_there_are_is_not_understood(total):
    with pytest.raises(Unclear, match="total_count"):
        OffsetPages().take({"data": [], "total_count": total})


def test_a_total_that_is_far_too_large_is_refused():
    with pytest.raises(Unclear, match="no end"):
        OffsetPages().take(offset_page(10**6, "a"))
