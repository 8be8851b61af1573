"""Credentials: kubeconfigs, service accounts, exec plugins, certificates; and that none of them is told."""

from __future__ import annotations

import json
import ssl
import sys
import tempfile
from base64 import b64encode
from pathlib import Path

import pytest
import trio
import trustme
from kube_double import open_double
from kube_kit import config, kubeconfig_text, open_source, pod, urls, write_kubeconfig
from scavenge_kubernetes import access
from scavenge_kubernetes.access import Chain
from scavenge_kubernetes.source import KubernetesSource

from scavenge.plugin import SourceError

SECRET = "s3cr3t-of-mine"


async def load(environ=None, **keys):
    return await Chain(config(**keys), environ=environ or {}).load()


async def trouble(environ=None, **keys):
    with pytest.raises(SourceError) as caught:
        await load(environ, **keys)
    text = str(caught.value)
    assert text.isprintable()
    assert SECRET not in text
    return text


# --- kubeconfigs


async def test_a_kubeconfig_tells_the_server_the_namespace_and_the_token(tmp_path):
    found = await load(kubeconfig=write_kubeconfig(tmp_path, "http://api.example:8080/", {"token": SECRET}))
    assert (found.server, found.namespace, found.proxy) == ("http://api.example:8080", "ml", None)
    assert found.headers == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(found)


async def test_another_context_and_a_namespace_of_the_configuration_win(tmp_path):
    path, text = tmp_path / "config", json.loads(kubeconfig_text("http://one.example"))
    text["clusters"].append({"name": "c2", "cluster": {"server": "http://two.example"}})
    text["contexts"].append({"name": "other", "context": {"cluster": "c2", "user": "u"}})
    path.write_text(json.dumps(text))
    found = await load(kubeconfig=path, context="other")
    assert (found.server, found.namespace, found.headers) == ("http://two.example", "default", {})


async def test_a_kubeconfig_without_a_current_context_needs_the_key(tmp_path):
    path, text = tmp_path / "config", json.loads(kubeconfig_text("http://one.example"))
    del text["current-context"]
    path.write_text(json.dumps(text))
    assert (await load(kubeconfig=path, context="test")).namespace == "ml"
    assert "current-context" in await trouble(kubeconfig=path)


async def test_the_variable_kubeconfig_names_files_and_home_has_one(tmp_path):
    home = tmp_path / ".kube"
    home.mkdir()
    (home / "config").write_text(kubeconfig_text("http://home.example"))
    assert (await load({"HOME": str(tmp_path)})).server == "http://home.example"
    named = write_kubeconfig(tmp_path, "http://named.example")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": f"{tmp_path}/nowhere:{named}"}
    assert (await load(environ)).server == "http://named.example"


async def test_a_proxy_of_the_cluster_is_used_and_one_of_the_environment_that_does_not_name_it_is_not(
    tmp_path, monkeypatch
):
    path = write_kubeconfig(tmp_path, "http://api.example", **{"proxy-url": "http://proxy.example:3128"})
    assert (await load(kubeconfig=path)).proxy == "http://proxy.example:3128"
    monkeypatch.setenv("HTTP_PROXY", "http://other.example:3128")
    monkeypatch.setenv("NO_PROXY", "api.example")
    assert (await load(kubeconfig=write_kubeconfig(tmp_path, "http://api.example"))).proxy is None
    assert (await load(kubeconfig=write_kubeconfig(tmp_path, "http://b.example"))).proxy == "http://other.example:3128"


async def test_what_is_not_there_is_told_with_what_to_do(tmp_path):
    assert "no such file" in await trouble(kubeconfig=tmp_path / "nope")
    assert "name a kubeconfig with the key `kubeconfig`" in await trouble({"HOME": str(tmp_path)})
    path = write_kubeconfig(tmp_path, "http://api.example")
    assert "no-such-context" in await trouble(kubeconfig=path, context="no-such-context")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 7",
        "7",
        f"users: [{{name: u, user: {{token: {SECRET}}}",
        f"\t{SECRET}",
        json.dumps({"users": [{"name": "u", "user": {"token": SECRET}}]}),
        kubeconfig_text("http://x", {"token": SECRET}).replace('"cluster": {"server"', '"clutter": {"server"'),
        kubeconfig_text("http://x", {"token": SECRET}).replace('"user": {', '"loser": {'),
        kubeconfig_text("http://x", {"token": SECRET + "\n\u00e9"}),
        kubeconfig_text("http://x", {"token": [SECRET]}).replace("server", "sever"),
        kubeconfig_text("https://x", {"client-certificate-data": SECRET, "client-key-data": SECRET}),
        kubeconfig_text("https://x", {"token": SECRET}, **{"certificate-authority": "/nowhere"}),
        kubeconfig_text("https://x", {"token": SECRET}, **{"certificate-authority-data": b64encode(b"no").decode()}),
    ],
    ids=range(13),
)
async def test_a_kubeconfig_that_is_none_is_told_without_what_it_holds(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    assert str(path) in await trouble(kubeconfig=path)


# --- the pod's service account


def in_pod(folder, server):
    host, _, port = server.removeprefix("https://").partition(":")
    return {"HOME": str(folder), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def test_in_a_pod_the_service_account_is_used_and_its_token_is_read_anew(tmp_path):
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "namespace").write_text("ml\n")
    (tmp_path / "token").write_text("first")
    async with open_double(tls=served) as kube:
        kube.tokens = {"first"}
        kube.store.put("pods", pod("a"))
        chain = Chain(config(), in_pod(tmp_path, kube.url), tmp_path)
        source = KubernetesSource(config(), chain)
        assert urls(await source.list_endpoints()) == ["http://10.0.0.7:8000/v1"]
        kube.tokens = {"second"}
        (tmp_path / "token").write_text("second")
        kube.store.delete("pods", "ml", "a")
        assert urls(await source.list_endpoints()) == []


async def test_an_address_of_ipv6_and_a_pod_without_a_token(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    environ = in_pod(tmp_path, "https://fd00::1") | {
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "6443",
    }
    chain = Chain(config(), environ, tmp_path)
    with pytest.raises(SourceError, match="the service account of this pod: Service token file does not exist"):
        await chain.load()
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "namespace").write_text("ml")
    assert (await chain.load()).server == "https://[fd00::1]:6443"


# --- exec plugins


def exec_user(folder, status, code=0, before=""):
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    script = folder / "plugin.py"
    lines = ["import os, sys, time", before, "assert os.environ['KUBERNETES_EXEC_INFO']"]
    script.write_text("\n".join([*lines, f"print({json.dumps(credential)!r})", f"sys.exit({code})"]))
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(script)]}
    return {"exec": {**command, "interactiveMode": "Never", "env": [{"name": "EXTRA", "value": "1"}]}}


async def test_an_exec_plugin_gives_the_token(tmp_path):
    user = exec_user(tmp_path, {"token": SECRET}, before="assert os.environ['EXTRA'] == '1'")
    found = await load(kubeconfig=write_kubeconfig(tmp_path, "http://api.example", user))
    assert found.headers == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("status", [{"token": SECRET}, {}])
async def test_an_exec_plugin_that_fails_is_told(tmp_path, status):
    user = exec_user(tmp_path, status, code=1 if status else 0)
    text = await trouble(kubeconfig=write_kubeconfig(tmp_path, "https://api.example", user))
    assert "its exec plugin fails" in text


async def test_an_exec_plugin_that_hangs_is_told_in_time_and_waited_for_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "LOADED_WITHIN_S", 0.5)
    gate = tmp_path / "gate"
    user = exec_user(tmp_path, {"token": SECRET}, before=f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)")
    chain = Chain(config(kubeconfig=write_kubeconfig(tmp_path, "http://api.example", user)), {})
    with pytest.raises(SourceError, match="the exec plugin of the kubeconfig hangs"):
        await chain.load()
    with pytest.raises(SourceError, match="hangs"):
        await chain.load()
    gate.touch()
    monkeypatch.setattr(access, "LOADED_WITHIN_S", 30)
    assert (await chain.load()).headers["Authorization"] == f"Bearer {SECRET}"


# --- certificates


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
async def secured(authority):
    """An API that speaks TLS and wants a certificate."""
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(served)
    served.verify_mode = ssl.CERT_REQUIRED
    async with open_double(tls=served) as kube:
        kube.store.put("pods", pod("a"))
        yield kube


def data(pem):
    return b64encode(pem.bytes()).decode()


async def test_a_client_certificate_in_the_kubeconfig_is_used_and_leaves_no_file(
    tmp_path, authority, secured, monkeypatch
):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    own = authority.issue_cert("tester@example")
    user = {"client-certificate-data": data(own.cert_chain_pems[0]), "client-key-data": data(own.private_key_pem)}
    ca = {"certificate-authority-data": data(authority.cert_pem)}
    async with open_source(write_kubeconfig(tmp_path, secured.url, user, **ca)) as source:
        assert urls(await source.list_endpoints()) == ["http://10.0.0.7:8000/v1"]
        source._access = None
        secured.store.delete("pods", "ml", "a")
        assert urls(await source.list_endpoints()) == []
    assert list(folder.iterdir()) == []


async def test_certificates_in_files_are_relative_to_the_kubeconfig(tmp_path, authority, secured):
    own = authority.issue_cert("tester@example")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.crt")
    own.private_key_pem.write_to_path(tmp_path / "own.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    user = {"client-certificate": "own.crt", "client-key": "own.key"}
    path = write_kubeconfig(tmp_path, secured.url, user, **{"certificate-authority": "ca.crt"})
    async with open_source(path) as source:
        assert urls(await source.list_endpoints()) == ["http://10.0.0.7:8000/v1"]


async def test_a_server_of_another_authority_is_refused_unless_it_is_not_looked_at(tmp_path, authority, secured):
    own = authority.issue_cert("tester@example")
    user = {"client-certificate-data": data(own.cert_chain_pems[0]), "client-key-data": data(own.private_key_pem)}
    other = {"certificate-authority-data": data(trustme.CA().cert_pem)}
    async with open_source(write_kubeconfig(tmp_path, secured.url, user, **other)) as source:
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            await source.list_endpoints()
        write_kubeconfig(tmp_path, secured.url, user, **{"insecure-skip-tls-verify": True})
        assert urls(await source.list_endpoints()) == ["http://10.0.0.7:8000/v1"]


async def test_the_name_in_the_certificate_may_be_another_than_the_servers(tmp_path, authority):
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("kubernetes.example").configure_cert(served)
    ca = {"certificate-authority-data": data(authority.cert_pem)}
    async with open_double(tls=served) as kube, open_source(tmp_path / "kubeconfig") as source:
        write_kubeconfig(tmp_path, kube.url, {"token": "t"}, **ca)
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            await source.list_endpoints()
        write_kubeconfig(tmp_path, kube.url, {"token": "t"}, **ca, **{"tls-server-name": "kubernetes.example"})
        assert urls(await source.list_endpoints()) == []


async def test_sources_that_load_side_by_side_do_not_take_each_others_files_away(tmp_path, authority):
    own = authority.issue_cert("tester@example")
    user = {"client-certificate-data": data(own.cert_chain_pems[0]), "client-key-data": data(own.private_key_pem)}
    path = write_kubeconfig(
        tmp_path, "https://api.example", user, **{"certificate-authority-data": data(authority.cert_pem)}
    )
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(Chain(config(kubeconfig=Path(path)), {}).load)
