"""Hostlist expressions become names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scavenge_slurm.hostlist import MOST_NODES, node_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", []),
        ("gpu1", ["gpu1"]),
        ("gpu[01-03,7]", ["gpu01", "gpu02", "gpu03", "gpu7"]),
        ("gpu[8-11]", ["gpu8", "gpu9", "gpu10", "gpu11"]),
        ("gpu[098-101]-ib", ["gpu098-ib", "gpu099-ib", "gpu100-ib", "gpu101-ib"]),
        ("a,b[2-3],c-4.site", ["a", "b2", "b3", "c-4.site"]),
        ("r[1-2]n[3,5]", ["r1n3", "r1n5", "r2n3", "r2n5"]),
    ],
)
def test_an_expression_names_its_nodes_in_order(expression, names):
    assert node_names(expression) == names


@pytest.mark.parametrize(
    "expression",
    ["gpu[", "gpu]", "gpu[]", "gpu[a-b]", "gpu[3-1]", "gpu[1-2-3]", "a,,b", "a,", ",a", "a b", "gpu[[1]]", "gpu[1,]"],
)
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(ValueError, match=r"no list of nodes|a comma too many|no range of numbers"):
        node_names(expression)


@pytest.mark.parametrize("expression", [f"n[1-{MOST_NODES + 1}]", "n[0-999999999999]", "a[1-999]b[1-999]c[1-999]"])
def test_more_nodes_than_any_job_has_are_refused_without_being_made(expression):
    with pytest.raises(ValueError, match=r"more than 10000 nodes|no range of numbers"):
        node_names(expression)


@given(st.text(alphabet="ab01[],- ", max_size=20))
def test_any_text_is_names_or_a_value_error(text):
    try:
        names = node_names(text)
    except ValueError:
        return
    assert all(names)
