"""The last number of a text, however it is written, and what counts as the same number."""

from __future__ import annotations

import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.numeric import NUMERIC_REPLY_CHARS, boxed_content, last_number, numeric

PLAIN = [
    ("42", "42"),
    ("The answer is 42.", "42"),
    ("first 1 then 2", "2"),
    ("**42**", "42"),
    ("__42__", "42"),
    ("007", "7"),
    (".5", "0.5"),
    ("-.5", "-0.5"),
    ("0.10", "0.1"),
    ("≈ 3.14159", "3.14159"),
    ("42km", "42"),
    ("12:30", "30"),
    ("答案是42", "42"),
    ("٤٢", "42"),
    ("1.2.3", "3"),
]
SEPARATORS = [
    ("1,234", "1234"),
    ("1,234,567", "1234567"),
    ("1,234,567.89", "1234567.89"),
    ("1.234.567", "1234567"),
    ("1.234.567,89", "1234567.89"),
    ("€1.000,50", "1000.5"),
    ("1 234 567", "1234567"),
    ("1\u00a0234", "1234"),
    ("1\u2009234,5", "1234.5"),
    ("1\u202f234", "1234"),
    ("1'234'567", "1234567"),
    ("1’234", "1234"),
    ("1_000_000", "1000000"),
    ("12,34,567", "1234567"),
    ("1{,}234", "1234"),
    (r"10\,000", "10000"),
    ("1.234", "1.234"),
    ("1,5", "1.5"),
    ("0,123", "0.123"),
    ("1,2,3", "3"),
    ("1, 2, 3", "3"),
    ("2020 500", "500"),
    ("10 200 10", "10"),
    ("1,234,56", "56"),
]
SIGNS = [
    ("-5", "-5"),
    ("−5", "-5"),
    ("x = −3", "-3"),
    ("答案是-5", "-5"),
    ("10-20", "20"),
    ("10–20", "20"),
    ("5 - 3", "3"),
    ("(x)-3", "3"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("-1,234.5", "-1234.5"),
    (r"-\frac{1}{2}", "-0.5"),
]
UNITS = [
    ("$1,234.50", "1234.5"),
    (r"\$20", "20"),
    ("€5", "5"),
    ("USD 5", "5"),
    ("25 m^2", "25"),
    ("25 cm^{2}", "25"),
    ("25 m**2", "25"),
    ("H2O has 3", "3"),
    ("x_2 is 7, as is x2", "7"),
]
FRACTIONS = [
    ("1/2", "0.5"),
    ("4 / 8", "0.5"),
    ("1 3/4", "1.75"),
    ("1 234/4", "58.5"),
    (r"\frac{3}{4}", "0.75"),
    (r"\dfrac34", "0.75"),
    (r"1\frac{3}{4}", "1.75"),
    ("½", "0.5"),
    ("2½", "2.5"),
    ("2 ¾", "2.75"),
]
POWERS = [
    ("5e3", "5000"),
    ("1.5E-3", "0.0015"),
    ("5 × 10^3", "5000"),
    (r"5 \times 10^{3}", "5000"),
    ("6.02 x 10**23", "602000000000000000000000"),
    ("3 × 10⁻²", "0.03"),
    ("10^6", "1000000"),
]
STATED = [
    (r"\boxed{42} and then 7", "42"),
    (r"\boxed{1} no, \boxed{2}. In 3 steps", "2"),
    (r"$\boxed{\frac{1}{2}}$ so 9", "0.5"),
    (r"\boxed{42", "42"),
    ("#### 42\nin 3 steps", "42"),
    ("#### $1,000.\nin 3 steps", "1000"),
    ("#### 1\n\\boxed{2} 3", "2"),
    ("\\boxed{2} 3\n#### 1\n4", "1"),
    ("#### Step 4\nso 12", "12"),
]


@pytest.mark.parametrize(
    ("text", "value"), [*PLAIN, *SEPARATORS, *SIGNS, *UNITS, *FRACTIONS, *POWERS, *STATED], ids=repr
)
def test_the_last_number_of_a_text_is_read(text: str, value: str) -> None:
    found = last_number(text)
    assert found is not None
    assert found.value == Decimal(value)


@pytest.mark.parametrize("text", ["", "none", "H2O", "x_2", "5/0", "1 3/0", "1e999999999", "1e401", "NaN", "inf", "-"])
def test_a_text_without_a_number_has_none(text: str) -> None:
    assert last_number(text) is None


def test_a_number_that_cannot_be_is_passed_over_for_the_one_before() -> None:
    assert numeric("7, not 5/0", 7, {}) == 1.0


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("it is 0.1", 0.1),
        ("it is 3", 3),
        ("it is 3.0", "3"),
        ("it is 2/6", "1/3"),
        ("50%", "50"),
        ("50%", "0.5"),
        ("50 percent", "50%"),
        (r"20\%", "20%"),
        ("0.5", "50%"),
        ("4", ["3", 4]),
        ("1234567890123456789012345678901", 1234567890123456789012345678901),
        ("18", "She has 16 - 3 - 4 = 9 and 9 * 2 = 18\n#### 18"),
    ],
)
def test_equal_numbers_score_one(reply: str, answer: object) -> None:
    assert numeric(reply, answer, {}) == 1.0


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("0.5%", "50%"),
        ("50%", "0.5%"),
        ("5", "50%"),
        ("41", 42),
        ("", 42),
        ("none", 42),
        ("-42", 42),
        ("1234567890123456789", 1234567890123456788),
    ],
)
def test_other_numbers_score_nothing(reply: str, answer: object) -> None:
    assert numeric(reply, answer, {}) == 0.0


@pytest.mark.parametrize("answer", ["", "many", None, True, [], ["1", "many"]])
def test_an_answer_without_a_number_is_refused_whatever_the_reply(answer: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        numeric("42", answer, {})


def test_only_the_end_of_a_long_reply_is_searched() -> None:
    assert last_number("7" + "x " * NUMERIC_REPLY_CHARS) is None


def test_an_unclosed_box_reaches_to_the_end() -> None:
    assert boxed_content(r"\boxed{a{b}c", 0) == "a{b}c"


@given(st.integers(), st.sampled_from([",", "'", "_", "\u00a0", "\u202f"]))
def test_every_integer_is_read_with_its_thousands_grouped(value: int, mark: str) -> None:
    found = last_number(f"so it is {value:,} in all".replace(",", mark))
    assert found is not None
    assert found.value == value


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=5))
def test_every_decimal_agrees_with_itself(value: Decimal) -> None:
    assert numeric(f"= {value:f}", f"{value:f}", {}) == 1.0


@given(st.text(alphabet=string.digits + " .,/eE-−%^*{}\\frac\\boxed#½⁵×$\n'"))
def test_no_text_breaks_the_search(text: str) -> None:
    last_number(text)


@given(st.text())
def test_no_text_at_all_breaks_the_search(text: str) -> None:
    last_number(text)
