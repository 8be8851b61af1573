"""What a gateway is made of, from its file and its options, before anything is opened."""

from __future__ import annotations

import pytest

from scavenge.app.gateway import GatewayOptions, gateway_parts
from scavenge.errors import ConfigError, UsageError

ENDPOINTS = '[[endpoint]]\nendpoint_id = "pool"\nmodel = "its-model"\nurl = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("elastic = true\n", "nothing to serve"),
        ("[gateway]\nportt = 1\n", "gateway.portt: unknown key"),
        ("[[source]]\ntype = 'nothing'\n", "nothing"),
    ],
)
def test_a_file_that_leads_nowhere_or_is_wrong_is_told_before_anything_is_opened(tmp_path, file, says):
    (tmp_path / "gateway.toml").write_text(file)
    with pytest.raises(ConfigError, match=says):
        gateway_parts(tmp_path / "gateway.toml", GatewayOptions())


def test_the_evals_of_a_file_need_not_be_installed_and_their_fixed_servers_are_served(tmp_path):
    lines = ['[[eval]]\nenv_id = "nobody/has-it"', 'model = "m"', 'api_base_url = "http://127.0.0.1:9/v1"']
    (tmp_path / "eval.toml").write_text("\n".join(lines))
    options = GatewayOptions(host="::1", port=7, token_var="MINE", grace=1.0)
    parts = gateway_parts(tmp_path / "eval.toml", options)
    assert [endpoint.model for endpoint in parts.fixed] == ["m"]
    gateway = parts.settings.gateway
    assert (gateway.host, gateway.port, gateway.token_var, gateway.grace) == ("::1", 7, "MINE", 1.0)


def test_a_file_of_endpoints_is_served_and_followed(tmp_path):
    (tmp_path / "endpoints.toml").write_text(ENDPOINTS)
    parts = gateway_parts(tmp_path / "endpoints.toml", GatewayOptions())
    assert parts.settings.elastic
    assert len(parts.sources) == 1


def test_a_file_of_endpoints_has_no_keys_that_could_be_set(tmp_path):
    (tmp_path / "endpoints.toml").write_text(ENDPOINTS)
    with pytest.raises(UsageError, match=r"--set: .*endpoints\.toml is an endpoints file"):
        gateway_parts(tmp_path / "endpoints.toml", GatewayOptions(overrides=("gateway.port=1",)))


def test_an_option_that_is_wrong_is_told_as_such(tmp_path):
    (tmp_path / "endpoints.toml").write_text(ENDPOINTS)
    with pytest.raises(UsageError, match="port: expected a number from 0 to 65535, got 65536"):
        gateway_parts(tmp_path / "endpoints.toml", GatewayOptions(port=65_536))
