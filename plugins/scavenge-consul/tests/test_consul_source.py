"""The source against a stand-in of an agent in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import httpx
import pytest
import tomli
import trio
import trustme
from consul_kit import Double, open_double, open_quick, service_config, shown
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scavenge_consul import ConsulConfig, open_consul
from scavenge_consul import source as source_module
from scavenge_consul.agent import Agent
from scavenge_consul.answers import TOLD_CHARACTERS
from scavenge_consul.instances import Instances
from scavenge_consul.pacing import Pace
from scavenge_consul.source import ConsulSource

from scavenge.plugin import Listing, SourceError

N1, N2 = "http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1"
ROWS = '[[endpoint]]\nendpoint_id = "pool"\nmodel = "m"\nurl = "http://10.0.0.1:8000/v1"\n'


async def trouble(source: Any) -> str:
    with pytest.raises(SourceError) as caught:
        await source.list_endpoints()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


async def until(double: Double, **counts: int) -> None:
    """Wait until the stand-in counts that."""
    while True:
        now = await double.control()
        if all(now[name] == count for name, count in counts.items()):
            return
        await trio.sleep(0.01)


async def test_the_first_answer_does_not_wait_and_the_next_one_holds_until_something_changes():
    async with open_double() as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address)) as source, trio.open_nursery() as nursery:
            assert shown(await source.list_endpoints()) == {N1: False}
            held: list[Listing] = []

            async def hold() -> None:
                held.append(await source.list_endpoints())

            nursery.start_soon(hold)
            await until(double, blocked=1)
            await double.serve("other", 1, Service="another", ID="x", Check=None)
            assert not held
            await double.serve("n2", 8000)
        assert shown(held[0]) == {N1: False, N2: False}


async def test_a_wait_that_is_over_answers_with_what_is_there():
    async with open_double() as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address, wait=1)) as source:
            first = await source.list_endpoints()
            assert await source.list_endpoints() == first
            assert any("index=" in seen and "wait=1000ms" in seen for seen in (await double.control())["seen"])


def in_memory(answer: Callable[[httpx.Request], httpx.Response]) -> ConsulSource:
    """A source at its usual pace, whose agent is a function."""

    def open_client() -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://consul")

    reader = Instances(service_config("http://consul"), "service llm", anonymous=False)
    return ConsulSource(Agent(open_client), reader, "/x", {}, "Consul", 60.0, Pace(Random(0)), None)


async def test_a_server_that_answers_at_once_is_asked_twice_and_then_once_a_second(autojump_clock):
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        return httpx.Response(
            200, headers={"X-Consul-Index": "0", "Content-Length": "2"}, stream=httpx.ByteStream(b"[]")
        )

    source = in_memory(answer)
    for _ in range(10):
        await source.list_endpoints()
    assert trio.current_time() == pytest.approx(8)
    assert asked == ["", *["index=1&wait=60000ms"] * 9]


async def test_a_server_that_fails_is_asked_less_and_less_and_as_late_as_it_says(autojump_clock):
    headers = {"Content-Length": "2"}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, headers=headers, stream=httpx.ByteStream(b"no"))

    source = in_memory(answer)
    for failures, least_s, most_s in ((1, 0, 0), (1, 0.5, 1), (1, 1, 2), (20, 0, 600), (1, 15, 30)):
        began = trio.current_time()
        for _ in range(failures):
            await trouble(source)
        assert least_s <= trio.current_time() - began <= most_s
    headers["Retry-After"] = "29"
    await trouble(source)
    began = trio.current_time()
    await trouble(source)
    assert 29 <= trio.current_time() - began <= 30


async def test_a_departure_is_said_twice_without_a_wait_so_that_it_is_believed():
    async with open_double() as double:
        for node in ("n1", "n2"):
            await double.serve(node, 8000)
        async with open_quick(service_config(double.address)) as source:
            await source.list_endpoints()
            await double.leave("n2")
            assert shown(await source.list_endpoints()) == {N1: False}
            assert shown(await source.list_endpoints()) == {N1: False}
            assert "index" not in (await double.control())["seen"][-1]
            await double.leave("n1")
            assert shown(await source.list_endpoints()) == {}
            assert shown(await source.list_endpoints()) == {}


async def test_an_instance_that_fails_its_checks_drains_and_one_that_was_never_well_is_not_there():
    async with open_double() as double:
        await double.serve("n1", 8000)
        await double.serve("n2", 8000, status="critical")
        async with open_quick(service_config(double.address)) as source:
            assert shown(await source.list_endpoints()) == {N1: False}
            await double.check("n2", "passing")
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}
            await double.check("n1", "critical")
            assert shown(await source.list_endpoints()) == {N1: True, N2: False}
            await double.check("n1", "passing")
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}


async def test_maintenance_of_a_service_and_of_a_node_drains():
    async with open_double() as double:
        await double.put("agent/service/register", {"Name": "llm", "Address": "10.0.0.1", "Port": 8000})
        async with open_quick(service_config(double.address)) as source:
            for path in ("agent/service/maintenance/llm", "agent/maintenance"):
                assert shown(await source.list_endpoints()) == {N1: False}
                await double.put(f"{path}?enable=true&reason=a+new+driver")
                assert shown(await source.list_endpoints()) == {N1: True}
                await double.put(f"{path}?enable=false")
            assert shown(await source.list_endpoints()) == {N1: False}


async def test_tags_datacentre_and_stale_go_into_the_question():
    async with open_double() as double:
        await double.serve("n1", 8000, Tags=["gpu", "blue"])
        await double.serve("n2", 8000, Tags=["gpu"])
        async with open_quick(service_config(double.address, tags=["gpu", "blue"], dc="dc1", stale=True)) as source:
            assert shown(await source.list_endpoints()) == {N1: False}
        assert (await double.control())["seen"][-1].endswith("/llm?dc=dc1&stale=&tag=gpu&tag=blue")
        for keys, said in (({"dc": "dc9"}, "No path to datacenter"), ({"namespace": "x"}, "Enterprise")):
            async with open_quick(service_config(double.address, **keys)) as source:
                assert said in await trouble(source)


async def test_a_service_with_odd_characters_in_its_name_is_asked_for_by_that_name():
    async with open_double() as double:
        await double.serve("n1", 8000, Service="a/b c?d#ü", ID="odd")
        async with open_quick(service_config(double.address, service="a/b c?d#ü")) as source:
            assert shown(await source.list_endpoints()) == {N1: False}


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"status": 500, "body": "rpc error: \n no"}, "status 500 (rpc error: no)"),
    ({"status": 429, "body": "rate limit exceeded", "headers": {"Retry-After": "0"}}, "it is asked less often now"),
    ({"status": 403, "body": "ACL not found"}, "`token_var` names the variable"),
    ({"status": 404, "headers": {"X-Consul-Index": None}}, "this is no Consul agent"),
    ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, "not followed"),
    ({"body": "<html>"}, "no JSON"),
    ({"body": "[" * 200, "times": 1000}, "no JSON"),
    ({"body": "{}"}, "no list of instances"),
    ({"body": "[[]]"}, "instance 0 of the answer has no Node"),
    ({"body": ""}, "no JSON"),
    ({"headers": {"X-Consul-Index": None}}, "no X-Consul-Index"),
    ({"headers": {"X-Consul-Index": "-7"}}, "no X-Consul-Index"),
    ({"headers": {"X-Consul-KnownLeader": "false"}}, "knows no leader"),
    ({"headers": {"X-Consul-LastContact": "10001"}}, "not heard of its leader"),
    ({"headers": {"X-Consul-Results-Filtered-By-ACLs": "true"}}, "may not see all"),
    ({"headers": {"Content-Encoding": "gzip"}}, "compressed"),
    ({"headers": {"Content-Length": None}}, "does not say how long it is"),
    ({"manner": "cut"}, "see that the agent runs"),
    ({"body": "x" * 1000, "times": 17000}, "larger than 16 MB"),
]


@pytest.mark.parametrize(("fault", "said"), FAULTS, ids=[said for _, said in FAULTS])
async def test_an_answer_that_is_no_listing_raises_and_the_next_one_says_what_is_there(fault, said):
    async with open_double() as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address)) as source:
            async with double.wrong(**fault):
                message = await trouble(source)
            assert said in message
            assert message.startswith(f"Consul at {double.address}, service llm: ")
            assert shown(await source.list_endpoints()) == {N1: False}


@pytest.mark.parametrize("manner", ["hang", "drip"])
async def test_an_agent_that_does_not_get_on_is_given_up(manner, monkeypatch):
    monkeypatch.setattr(source_module, "ANSWER_S", 0.3)
    async with (
        open_double() as double,
        open_quick(service_config(double.address)) as source,
        double.wrong(manner=manner),
    ):
        assert "no whole answer within" in await trouble(source)


async def test_a_blocked_query_ends_with_the_agent_and_what_follows_says_so():
    async with open_double(own=True) as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address)) as source:
            await source.list_endpoints()
            for end in ({"drop": True}, {"leader": False}):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trouble, source)
                    await until(double, blocked=1)
                    await double.control(**end)
                await double.control(leader=True)
                assert shown(await source.list_endpoints()) == {N1: False}
            double.process.kill()
            double.process.wait()
            assert "see that the agent runs" in await trouble(source)


async def test_a_cancelled_query_leaves_no_blocked_one_behind():
    async with open_double() as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address)) as source:
            await source.list_endpoints()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source.list_endpoints)
                await until(double, blocked=1)
                nursery.cancel_scope.cancel()
            await until(double, blocked=0)
            await double.serve("n2", 8000)
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}


async def test_without_a_leader_only_a_stale_read_would_answer_and_is_not_believed():
    async with open_double() as double:
        await double.serve("n1", 8000)
        for stale, said in ((False, "No cluster leader"), (True, "knows no leader")):
            async with open_quick(service_config(double.address, stale=stale)) as source:
                async with double.told({"leader": False}, {"leader": True}):
                    assert said in await trouble(source)
                assert shown(await source.list_endpoints()) == {N1: False}


async def test_an_empty_answer_to_nobody_in_particular_is_no_listing_where_reads_are_denied(monkeypatch):
    monkeypatch.setenv("SEES_ALL", "all-of-it")
    monkeypatch.setenv("SEES_SOME", "some-of-it")
    monkeypatch.setenv("UNKNOWN", "who-is-this")
    async with open_double() as double:
        async with open_quick(service_config(double.address)) as source:
            assert shown(await source.list_endpoints()) == {}
        for node in ("n1", "n2"):
            await double.serve(node, 8000)
        await double.control(tokens={"all-of-it": None, "some-of-it": ["n1"]})
        cases = {None: "does not say whether it hides", "SEES_SOME": "may not see all", "UNKNOWN": "ACL not found"}
        for variable, said in cases.items():
            async with open_quick(service_config(double.address, token_var=variable)) as source:
                assert said in await trouble(source)
        async with open_quick(service_config(double.address, token_var="SEES_ALL", wait=1)) as source:
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}
            await double.control(tokens={"all-of-it": []}, wake=True)
            assert "may not see all" in await trouble(source)


async def test_no_text_and_no_repr_has_the_token_in_it(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "f00-ba7")
    async with open_double() as double, open_quick(service_config(double.address, token_var="THE_TOKEN")) as source:
        async with double.wrong(status=400, body="what is f00-ba7"):
            assert "what is [token]" in await trouble(source)
        async with double.wrong(status=403, body=f"{'x' * (TOLD_CHARACTERS - 4)}f00-ba7"):
            assert "f00" not in await trouble(source)
        assert "f00-ba7" not in repr(source)
        heard = (await double.control())["heard"]
        assert (heard["x-consul-token"], heard["accept-encoding"]) == ("f00-ba7", "identity")


@pytest.mark.parametrize(("value", "said"), [(None, "is not set"), ("", "is not set"), ("a\nb", "no HTTP header can")])
async def test_a_variable_without_a_token_is_named_at_the_opening(value, said, monkeypatch):
    monkeypatch.delenv("THE_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("THE_TOKEN", value)
    with pytest.raises(SourceError, match=f"THE_TOKEN.*{said}"):
        async with open_consul(service_config("http://127.0.0.1:1", token_var="THE_TOKEN")):
            pytest.fail("it was opened")


async def test_a_state_that_went_back_is_believed_about_what_is_missing_only_after_a_while(monkeypatch):
    async with open_double() as double:
        for node in ("n1", "n2"):
            await double.serve(node, 8000)
        async with open_quick(service_config(double.address, wait=1)) as source:
            await source.list_endpoints()
            await double.control(restore=3, empty=True)
            assert "lacks 2 of the endpoints" in await trouble(source)
            await double.serve("n1", 8000)
            assert "lacks 1 of the endpoints" in await trouble(source)
            await double.serve("n2", 8000)
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}
            monkeypatch.setattr(source_module, "DOUBT_S", 0.0)
            await double.control(restore=2, empty=True)
            assert shown(await source.list_endpoints()) == {}


async def test_an_index_that_went_back_with_everything_in_place_changes_nothing():
    async with open_double() as double:
        await double.serve("n1", 8000)
        async with open_quick(service_config(double.address, wait=1)) as source:
            first = await source.list_endpoints()
            await double.control(restore=2)
            assert await source.list_endpoints() == first
            await double.serve("n2", 8000)
            assert shown(await source.list_endpoints()) == {N1: False, N2: False}


async def test_a_stored_file_is_listed_and_followed():
    async with open_double() as double:
        await double.store("a/endpoints.toml", ROWS)
        async with open_quick(ConsulConfig(kv="a/endpoints.toml", address=double.address)) as source:
            listing = await source.list_endpoints()
            assert shown(listing) == {N1: False}
            assert listing.where == "key a/endpoints.toml"
            async with trio.open_nursery() as nursery:
                held: list[Listing] = []

                async def hold() -> None:
                    held.append(await source.list_endpoints())

                nursery.start_soon(hold)
                await until(double, blocked=1)
                await double.store("a/endpoints.toml", ROWS + "draining = true\n")
            assert shown(held[0]) == {N1: True}
            await double.store("a/endpoints.toml", "endpoint = []")
            assert shown(await source.list_endpoints()) == {}


async def test_a_key_that_is_not_there_is_no_listing_and_is_waited_for():
    async with open_double() as double:
        config = ConsulConfig(kv="endpoints.toml", address=double.address)
        async with open_quick(config) as source:
            assert "there is no key endpoints.toml" in await trouble(source)
            async with trio.open_nursery() as nursery:
                held: list[Listing] = []

                async def hold() -> None:
                    held.append(await source.list_endpoints())

                nursery.start_soon(hold)
                await until(double, blocked=1)
                await double.store("endpoints.toml", ROWS)
            assert shown(held[0]) == {N1: False}
            assert any("wait=20000ms" in seen for seen in (await double.control())["seen"])  # 60 s are all there are
            await double.delete("endpoints.toml")
            assert "there is no key" in await trouble(source)


async def test_a_stored_value_that_is_no_listing_raises():
    async with open_double() as double, open_quick(ConsulConfig(kv="k", address=double.address)) as source:
        for text, said in (("", "is empty"), ("[[endpoint]", "no TOML"), ("x = 1", "unknown key"), (ROWS, "")):
            await double.store("k", text)
            if said:
                assert said in await trouble(source)
        assert shown(await source.list_endpoints()) == {N1: False}


async def test_tls_shows_a_certificate_and_checks_the_name(tmp_path):
    authority, server = trustme.CA(), None
    server, client = authority.issue_cert("server.dc1.consul"), authority.issue_cert("me@example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    async with open_double() as plain, open_double("--tls", f"{tmp_path}/server.pem", f"{tmp_path}/ca.pem") as double:
        address = f"https://127.0.0.1:{double.port}"
        trusts = {"ca_file": tmp_path / "ca.pem", "server_name": "server.dc1.consul"}
        mine = {"cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
        async with open_quick(service_config(address, **trusts, **mine)) as source:
            assert shown(await source.list_endpoints()) == {}
        for keys in (mine, {**mine, "ca_file": tmp_path / "ca.pem"}, trusts):
            async with open_quick(service_config(address, **keys)) as source:
                assert "see that the agent runs and `address` is right" in await trouble(source)
        async with open_quick(service_config(f"https://127.0.0.1:{plain.port}", **trusts)) as source:
            assert "see that the agent runs" in await trouble(source)


async def test_tls_files_that_cannot_be_used_are_named_at_the_opening(tmp_path):
    (tmp_path / "garbage.pem").write_text("no certificate")
    for keys, said in (
        ({"ca_file": tmp_path / "none.pem"}, "ca_file cannot be used"),
        ({"ca_file": tmp_path / "garbage.pem"}, "ca_file cannot be used"),
        ({"cert_file": tmp_path / "garbage.pem"}, "cert_file cannot be used"),
        ({"cert_file": tmp_path / "none.pem", "key_file": tmp_path / "none.key"}, "cert_file and key_file cannot"),
    ):
        with pytest.raises(SourceError, match=said):
            async with open_consul(service_config("https://127.0.0.1:1", **keys)):
                pytest.fail("it was opened")


class Endless(httpx.AsyncByteStream):
    """An answer without an end."""

    sent = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.sent += 1
        return b" " * 1024**2


async def test_an_answer_without_an_end_is_cut_off():
    stream = Endless()
    headers = {"Transfer-Encoding": "chunked"}
    source = in_memory(lambda request: httpx.Response(200, headers=headers, stream=stream))
    assert "larger than 16 MB" in await trouble(source)
    assert stream.sent == 17


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path):
    secret = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    (tmp_path / "key.pem").write_bytes(secret)
    trustme.CA().issue_cert("me@example.org").cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    keys = {"cert_file": tmp_path / "cert.pem", "key_file": tmp_path / "key.pem"}
    with pytest.raises(SourceError, match="the key needs a password; store it without one"):
        async with open_consul(service_config("https://127.0.0.1:1", **keys)):
            pytest.fail("it was opened")


async def test_stored_rows_that_are_none_cost_themselves_only():
    async with open_double() as double, open_quick(ConsulConfig(kv="k", address=double.address)) as source:
        for text in ("endpoint = [1, {}, {url = 2}]", "endpoint = [[], 3]"):
            await double.store("k", text)
            assert list((await source.list_endpoints()).endpoints) == tomli.loads(text)["endpoint"]


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with open_double() as double, open_quick(service_config(double.address)) as source:
        assert shown(await source.list_endpoints()) == {}


async def test_an_agent_behind_a_path_is_asked_there():
    async with open_double() as double:
        async with open_quick(service_config(f"{double.address}/consul/")) as source:
            assert "not a recognized HTTP API endpoint" in await trouble(source)
        assert (await double.control())["seen"][-1] == "GET /consul/v1/health/service/llm"
