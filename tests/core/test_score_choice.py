"""Which option a reply settles on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.choice import CHOICE_REPLY_CHARS, choice, option_letter, stated_option

STATED = [
    ("B", "B"),
    ("b", "B"),
    ("(B)", "B"),
    ("**B**", "B"),
    ("`C`", "C"),
    ('"B"', "B"),
    ("<B>", "B"),
    ("[B]", "B"),
    ("B.", "B"),
    ("A.", "A"),
    ("Answer: B", "B"),
    ("answer: b", "B"),
    ("Answer:\nB", "B"),
    ("Answer:\n\n**(E)**", "E"),
    ("**Answer:** B", "B"),
    ("**Answer**: (C)", "C"),
    ("The answer is (B).", "B"),
    ("The answer is B because it fits.", "B"),
    ("The correct option is C.", "C"),
    ("The best answer is option B", "B"),
    ("the choice is **D**: because", "D"),
    ("The answer is A", "A"),
    ("The answer is A.", "A"),
    ("The answer is A because of gravity", "A"),
    ("My answer is: A, since it is right", "A"),
    ("I choose C", "C"),
    ("I'd go with (d)", "D"),
    ("Option D", "D"),
    ("#### D", "D"),
    ("答案是B", "B"),
    ("答案：C", "C"),
    (r"The final answer is: \boxed{D}", "D"),
    (r"$\boxed{\text{B}}$", "B"),
    (r"\boxed{B. Paris}", "B"),
    (r"\boxed{42} so the answer is B", "B"),
    ("I would say it is B.", "B"),
    ("B. Paris", "B"),
    ("B) Paris", "B"),
    ("A. Paris", "A"),
]
LAST_WINS = [
    ("(A) no wait, (B)", "B"),
    ("Answer: A\nAnswer: B", "B"),
    ("The answer is (A). Actually, the answer is (C)", "C"),
    (r"\boxed{A} hm, \boxed{C}", "C"),
    ("Answer: B. Option (A) is wrong.", "B"),
    ("A) Paris\nB) London\nAnswer: A", "A"),
    ("A) Paris is out\nB) London it is", "B"),
]
NOT_STATED = [
    "",
    "A dog is an animal.",
    "The answer is a dog.",
    "The answer is A dog",
    "The answer is that a.",
    "The answer is I'm not sure",
    "I think so.",
    "It's not clear",
    "C is correct, or so they say",
    "Band",
]


@pytest.mark.parametrize(("reply", "letter"), [*STATED, *LAST_WINS])
def test_the_option_that_a_reply_states_is_found(reply: str, letter: str) -> None:
    assert stated_option(reply) == letter
    assert choice(reply, letter, {}) == 1.0
    assert choice(reply, "Z", {}) == 0.0


@pytest.mark.parametrize("reply", NOT_STATED)
def test_words_are_no_options(reply: str) -> None:
    assert stated_option(reply) is None
    assert choice(reply, "A", {}) == 0.0


@pytest.mark.parametrize(
    ("answer", "letter"), [("B", "B"), ("(b)", "B"), ("B.", "B"), (" c ", "C"), (0, "A"), (3, "D"), (25, "Z")]
)
def test_an_answer_is_a_letter_or_counts_from_0(answer: object, letter: str) -> None:
    assert option_letter(answer) == letter


@pytest.mark.parametrize("answer", ["Paris", "", "1", 26, -1, True, None, 1.5, [], ["A", "Paris"]])
def test_an_answer_that_is_no_letter_is_refused_whatever_the_reply(answer: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        choice("B", answer, {})


def test_any_of_several_answers_is_right() -> None:
    assert choice("Answer: C", ["B", "C"], {}) == 1.0


@pytest.mark.parametrize("piece", ["\n", " ", "A", "**", "Answer: ", "choose the ", "\\boxed{", "#"])
def test_a_long_reply_that_states_nothing_is_searched_to_its_end(piece: str) -> None:
    assert stated_option(piece * CHOICE_REPLY_CHARS) is None


def test_only_the_end_of_a_long_reply_is_searched() -> None:
    assert stated_option("Answer: B\n" + "x" * CHOICE_REPLY_CHARS) is None


@given(st.text())
def test_no_text_breaks_the_search(text: str) -> None:
    assert stated_option(text) is None or len(stated_option(text) or "") == 1


@given(st.text(alphabet="ABIabi ().:*\n_\\boxed{}answer is#"))
def test_no_text_of_letters_and_marks_breaks_the_search(text: str) -> None:
    stated_option(text)
