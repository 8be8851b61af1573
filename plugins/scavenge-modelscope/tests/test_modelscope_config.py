"""The keys of the store, and where its token comes from."""

from __future__ import annotations

import pytest
from scavenge_modelscope import ModelScopeConfig, scavenge_image_stores

from scavenge.plugin import StoreError


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"repo": "images"}, "expected a repository such as"),
        ({"repo": "a/b/c"}, "expected a repository such as"),
        ({"repo": "../b"}, "expected a repository such as"),
        ({"repo": "a/b?c"}, "expected a repository such as"),
        ({"repo_type": "studio"}, "expected dataset or model"),
        ({"revision": "../x"}, "expected the name of a branch"),
        ({"revision": ""}, "expected the name of a branch"),
        ({"token_var": "ms-0123 4567"}, "not the token itself"),
        ({"endpoint": "modelscope.cn"}, "expected the URL of a ModelScope site"),
        ({"endpoint": "https://me:secret@modelscope.cn"}, "must not contain a user name"),
        ({"endpoint": "https://modelscope.cn/?a=b"}, "expected the URL of a ModelScope site"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, str], said: str):
    with pytest.raises(ValueError, match=said) as caught:
        ModelScopeConfig(**{"repo": "me/images", **keys})
    assert "secret" not in str(caught.value)


def test_the_token_is_that_of_the_own_tools_unless_a_variable_is_named():
    environ = {"MODELSCOPE_API_TOKEN": "usual", "MINE": "mine"}
    assert ModelScopeConfig("me/images").token(environ) == "usual"
    assert ModelScopeConfig("me/images", token_var="MINE").token(environ) == "mine"
    assert ModelScopeConfig("me/images").token({}) is None


@pytest.mark.parametrize(
    ("value", "said"), [(None, "not set"), ("", "empty"), ("a b", "holds white space"), ("ü", "holds white space")]
)
def test_a_token_that_is_named_has_to_be_there(value: str | None, said: str):
    environ = {} if value is None else {"MINE": value}
    with pytest.raises(StoreError, match=f"MINE (is )?{said}"):
        ModelScopeConfig("me/images", token_var="MINE").token(environ)


def test_the_store_is_named_once():
    (kind,) = scavenge_image_stores()
    assert (kind.name, kind.address) == ("modelscope", "repo")
