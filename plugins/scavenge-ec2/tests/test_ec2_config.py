"""The keys of an ``ec2`` source, as they are read from a file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from ec2_double import TEMPLATE
from scavenge_ec2.config import Ec2Config

FILTERS = {"tag:role": "vllm"}


def config(**keys: object) -> Ec2Config:
    return Ec2Config(**{"filters": FILTERS, **TEMPLATE, **keys})


def test_only_filters_and_the_template_have_to_be_there():
    made = config()
    assert (made.region, made.profile, made.endpoint_url) == (None, None, None)
    assert made.spot_notices
    assert made.drain_tag == "scavenge:drain"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"filters": {}}, "filters: name at least one"),
        ({"filters": {"instance-state-name": "running"}}, "set by the source itself; remove it"),
        ({"filters": {"tag:role": []}}, "needs a name and at least one value"),
        ({"filters": {"tag:role": ["a", ""]}}, "needs a name and at least one value"),
        ({"filters": {"": "a"}}, "needs a name"),
        ({"region": " "}, "region: empty"),
        ({"profile": ""}, "profile: empty"),
        ({"drain_tag": ""}, "drain_tag: empty"),
        ({"endpoint_url": "localhost:5000"}, "endpoint_url: expected an http or https URL"),
        ({"endpoint_url": "http://:5000"}, "endpoint_url: expected an http or https URL"),
        ({"endpoint_url": "http://host:port"}, "endpoint_url: expected an http or https URL"),
        ({"endpoint_url": "http://[1"}, "endpoint_url: expected an http or https URL"),
        ({"endpoint_url": "ftp://host"}, "endpoint_url: expected an http or https URL"),
        ({"url": "http://{privat_ip}/v1"}, 'did you mean "private_ip"'),
        ({"url": "http://{tag.}/v1"}, "no fact"),
    ],
)
def test_a_wrong_key_is_named_with_the_remedy(keys, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        config(**keys)


def test_a_user_in_the_endpoint_url_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="credentials come by the SDK's own chain") as caught:
        config(endpoint_url="http://me:hunter2@host")
    assert "hunter2" not in str(caught.value)


def test_the_evaluation_file_is_held_to_the_keys(tmp_path: Path):
    keys = {"filters": {"tag:role": ["vllm", 2]}, "spot_notice": False, **TEMPLATE, "url": "http://{privateip}/v1"}
    document = {"source": [{"type": "ec2", **keys}], "eval": [{"env_id": "chat", "endpoint_id": "pool"}]}
    (tmp_path / "eval.toml").write_text(tomli_w.dumps(document))
    command = [sys.executable, "-m", "scavenge", "run", "eval.toml", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'eval.toml: source[0].filters."tag:role"[1]: expected a string, got 2' in done.stderr
    assert 'did you mean "spot_notices"?' in done.stderr
    assert 'did you mean "private_ip"?' in done.stderr
