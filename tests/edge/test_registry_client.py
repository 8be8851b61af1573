"""The registry client against a fake registry: whatever registries and networks do, what comes is whole and checked."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import attrs
import pytest
import trio
import trustme
from fake_registry import (
    Cut,
    FakeRegistry,
    Forget,
    Redirect,
    Refuse,
    Silent,
    Swallow,
    Whole,
    Wrong,
    open_fake_registry,
)

from fake_images import FakeImage, digest_of
from scavenge.core.images.dockerauth import Auth
from scavenge.core.images.manifests import DOCKER_MANIFEST, OCI_MANIFEST, Blob, manifest_json
from scavenge.edge.images import registry_requests, registry_retries, registry_upload, registry_wire
from scavenge.edge.images.registry_client import Registries, Registry, open_registries
from scavenge.edge.images.registry_download import open_blob
from scavenge.edge.images.registry_upload import has_blob
from scavenge.edge.images.registry_wire import RegistryFault, is_here
from scavenge.images import Broken, Denied, Missing, Throttled, Transferred, Unfit

T = TypeVar("T")
DATA = bytes(range(256)) * 1000
USER = Auth("registry", "u", "p", origin="a file of theirs")


@attrs.define
class Known:
    """Credentials that are there."""

    auth: Auth | None = None
    asked: list[str] = attrs.field(factory=list)

    async def find(self, image: str) -> Auth | None:
        self.asked.append(image)
        return self.auth


@asynccontextmanager
async def client(fake: FakeRegistry, auth: Auth | None = None) -> AsyncIterator[Registry]:
    async with registries(auth) as them:
        yield await them.of(fake.host)


@asynccontextmanager
async def registries(auth: Auth | None = None) -> AsyncIterator[Registries]:
    async with open_registries(Known(auth), Random(1), pause_first_s=0.0) as them:
        yield them


async def read(registry: Registry, digest: str, start: int = 0, path: str = "a/b") -> bytes:
    async with open_blob(registry.requests, path, digest, start) as pieces:
        return b"".join([piece async for piece in pieces])


def name(fake: FakeRegistry, rest: str = "a/b:1") -> str:
    return f"{fake.host}/{rest}"


# --- manifests


@pytest.mark.parametrize(("kind", "media_type"), [("oci", OCI_MANIFEST), ("docker", DOCKER_MANIFEST)])
async def test_a_manifest_of_either_kind_is_read(kind: str, media_type: str):
    with open_fake_registry() as fake:
        image = FakeImage((b"one", b"two"))
        digest = fake.add("a/b:1", image, kind=kind)
        async with client(fake) as registry:
            found = await registry.document("a/b", "1")
            assert (found.digest, found.media_type, len(found.layers)) == (digest, media_type, 2)
            assert await registry.read_blob("a/b", found.config) == image.config
            assert (await registry.head(name(fake))).digest == digest


async def test_a_manifest_that_is_not_the_one_of_its_digest_is_refused():
    with open_fake_registry() as fake:
        digest = fake.add("a/b:1", FakeImage())
        other = json.dumps({"schemaVersion": 2, "layers": [], "config": {}}).encode()
        fake.script("GET", "/manifests/", Wrong(other), Wrong(other))
        async with client(fake) as registry:
            for asked in ("1", digest):
                with pytest.raises(RegistryFault, match="another digest") as caught:
                    await registry.document("a/b", asked)
                assert isinstance(caught.value.end, Unfit)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"[" * 10_000, "no JSON object"),
        (b'{"manifests": [{}]}', "expected a sha256 digest"),
    ],
)
async def test_what_is_no_image_is_unfit(document: bytes, why: str):
    with open_fake_registry() as fake:
        fake.manifest("a/b", "1", "application/json", document)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match=why) as caught:
                await registry.document("a/b", "1")
            assert isinstance(caught.value.end, Unfit)


async def test_a_manifest_that_never_ends_is_not_read_on():
    with open_fake_registry() as fake:
        fake.manifest("a/b", "1", OCI_MANIFEST, b" " * (5 * 2**20))
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="more than 4194304 bytes"):
                await registry.document("a/b", "1")


async def test_tags_are_read_page_by_page_and_not_for_ever():
    with open_fake_registry() as fake:
        for number in range(25):
            fake.add(f"a/b:v{number:02}", FakeImage())
        fake.page = 10
        async with client(fake) as registry:
            assert await registry.tags("a/b") == [f"v{number:02}" for number in range(25)]
            fake.page = 1
            assert len(await registry.tags("a/b")) == 10


# --- what goes wrong


@pytest.mark.parametrize(
    ("refusal", "kind", "after_s"),
    [
        (Refuse(404, "MANIFEST_UNKNOWN", "manifest unknown"), Missing, None),
        (Refuse(404, "NAME_UNKNOWN", "repository name not known to registry"), Missing, None),
        (Refuse(404, text="<html>nginx</html>"), Broken, None),
        (Refuse(403, "DENIED", "requested access to the resource is denied"), Denied, None),
        (Refuse(401, "UNAUTHORIZED", "authentication required"), Denied, None),
        (Refuse(429, "TOOMANYREQUESTS", "pull rate limit", {"retry-after": "120"}), Throttled, 120.0),
        (Refuse(429, headers={"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}), Throttled, 0.0),
        (Refuse(429, text="slow down"), Throttled, None),
        (Refuse(429, headers={"ratelimit-reset": "30"}), Throttled, 30.0),
        (Refuse(429, headers={"retry-after": "1e99"}), Throttled, 21600.0),
        (Refuse(503, text="no healthy upstream"), Broken, None),
        (Refuse(500, "UNKNOWN", "unknown error"), Broken, None),
        (Refuse(302, headers={"location": "/login"}), Broken, None),
    ],
)
async def test_a_refusal_has_its_end(refusal: Refuse, kind: type, after_s: float | None):
    with open_fake_registry() as fake:
        fake.script("GET", "/manifests/", refusal)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault) as caught:
                await registry.document("a/b", "1")
        assert isinstance(caught.value.end, kind)
        assert str(caught.value).startswith(fake.host)
        if isinstance(caught.value.end, Throttled):
            assert caught.value.end.retry_after_s == after_s


async def test_a_registry_that_is_not_there_is_broken():
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    async with registries() as them:
        registry = await them.of(host)
        with pytest.raises(RegistryFault, match="refused") as caught:
            await registry.document("a/b", "1")
    assert isinstance(caught.value.end, Broken)


async def test_a_registry_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_requests, "ANSWER_WITHIN_S", 0.1)
    with open_fake_registry() as fake:
        fake.script("GET", "/manifests/", Silent())
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="no whole answer within"):
                await registry.document("a/b", "1")


async def test_nothing_is_followed_to_plain_http_elsewhere():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", *[Redirect("http://198.51.100.1/x")] * 6)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match=r"leads to http://198\.51\.100\.1, which is not https"):
                await read(registry, digest)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1", True),
        ("127.8.9.1:80", True),
        ("[::1]:5000", True),
        ("[::1]", True),
        ("localhost.example:5000", False),
        ("registry.example", False),
        ("10.0.0.1:5000", False),
        ("[fe80::1]:5000", False),
        ("127.0.0.1.example", False),
    ],
)
def test_only_this_machine_is_here(host: str, here: bool):
    assert is_here(host) is here


async def test_a_registry_elsewhere_is_spoken_to_by_https_only(monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []

    async def send(self: object, request: object, **options: object) -> object:
        await trio.lowlevel.checkpoint()
        sent.append(str(request.url))  # type: ignore[attr-defined]
        raise registry_wire.httpx.ConnectError("refused")

    monkeypatch.setattr(registry_wire.httpx.AsyncClient, "send", send)
    async with registries() as them:
        for host in ("registry.example:5000", "docker.io"):
            registry = await them.of(host)
            with pytest.raises(RegistryFault):
                await registry.document("library/x", "1")
    assert sent == [
        "https://registry.example:5000/v2/library/x/manifests/1",
        "https://registry-1.docker.io/v2/library/x/manifests/1",
    ]


async def test_https_is_spoken_here_where_it_is_taken(
    authority: trustme.CA, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
):
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with open_fake_registry(server_tls) as fake:
        fake.add("a/b:1", FakeImage())
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match=r"certificate is not trusted.*SSL_CERT_FILE"):
                await registry.document("a/b", "1")
        assert fake.count("GET") == 0
        monkeypatch.setattr(registry_wire, "shared_context", lambda: trusting)
        async with client(fake) as registry:
            await registry.document("a/b", "1")


async def test_a_proxy_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example")
    async with registries() as them:
        with pytest.raises(RegistryFault, match="proxy of the environment cannot be used"):
            await them.of("registry.example")
        with open_fake_registry() as fake:  # what is here is asked without one
            fake.add("a/b:1", FakeImage())
            await (await them.of(fake.host)).document("a/b", "1")


# --- who may


def basic(said: str) -> str:
    return base64.b64decode(said.removeprefix("Basic ")).decode()


async def test_a_password_opens_a_registry_and_is_sent_only_when_asked_for():
    with open_fake_registry() as fake:
        fake.add("a/b:1", FakeImage())
        fake.auth, fake.users = "basic", {"u": "p"}
        async with client(fake, USER) as registry:
            await registry.document("a/b", "1")
            await registry.document("a/b", "1")
        sent = [call.headers.get("authorization", "") for call in fake.calls]
        assert [basic(one) for one in sent] == ["", "u:p", "u:p"]


@pytest.mark.parametrize("way", ["basic", "bearer"])
async def test_without_the_right_credentials_it_is_told_what_was_sent_and_what_helps(way: str):
    with open_fake_registry() as fake:
        fake.auth, fake.users = way, {"u": "p"}
        for auth, said in [
            (None, "no credentials were sent.*`docker login 127.0.0.1"),
            (
                attrs.evolve(USER, password="wrong"),
                "credentials of a file of theirs were sent: `docker login 127.0.0.1",
            ),
        ]:
            async with client(fake, auth) as registry:
                with pytest.raises(RegistryFault, match=said) as caught:
                    await registry.document("a/b", "1")
            assert isinstance(caught.value.end, Denied)
            assert "wrong" not in str(caught.value)


async def test_a_token_is_fetched_once_for_a_scope_and_kept():
    with open_fake_registry() as fake:
        fake.add("a/b:1", FakeImage())
        fake.auth, fake.users = "bearer", {"u": "p"}
        async with client(fake, USER) as registry:
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(registry.document, "a/b", "1")
            assert fake.count("GET", "/token") == 1
            await registry.document("a/b", "1")
            assert fake.count("GET", "/token") == 1
        [token] = [call for call in fake.calls if "/token" in call.path]
        assert token.path == "/token?service=fake%2C+or+so&scope=repository%3Aa%2Fb%3Apull"
        assert basic(token.headers["authorization"]) == "u:p"


async def test_a_token_that_is_no_longer_taken_or_has_run_out_is_renewed():
    with open_fake_registry() as fake:
        fake.add("a/b:1", FakeImage())
        fake.auth = "bearer"
        async with client(fake) as registry:
            await registry.document("a/b", "1")
            fake.tokens.clear()
            await registry.document("a/b", "1")
            assert fake.count("GET", "/token") == 2
            fake.expires_in = 1e-9
            fake.tokens.clear()
            await registry.document("a/b", "1")
            before = len(fake.calls)
            await registry.document("a/b", "1")
            assert "authorization" not in fake.calls[before].headers


async def test_an_identity_token_is_exchanged():
    with open_fake_registry() as fake:
        fake.add("a/b:1", FakeImage())
        fake.auth, fake.users = "bearer", {"u": "p"}
        async with client(fake, Auth("registry", identity_token="refresh")) as registry:
            await registry.document("a/b", "1")
        assert fake.count("POST", "/token") == 1


@pytest.mark.parametrize("reply", [b"", b"[]", b'{"token": 3}', b'{"token": "a\\r\\nx: y"}', b'{"access_token": ""}'])
async def test_what_is_no_token_is_told(reply: bytes):
    with open_fake_registry() as fake:
        fake.auth = "bearer"
        fake.script("GET", "/token", Wrong(reply))
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="gives no token"):
                await registry.document("a/b", "1")


@pytest.mark.parametrize("expires_in", [None, "300", -1, 1e308, 0])
async def test_a_life_that_is_none_does_not_matter(expires_in: object):
    with open_fake_registry() as fake:
        fake.add("a/b:1", FakeImage())
        fake.auth, fake.expires_in = "bearer", expires_in
        async with client(fake) as registry:
            await registry.document("a/b", "1")


async def test_a_token_service_that_throttles_is_the_registrys():
    with open_fake_registry() as fake:
        fake.auth = "bearer"
        fake.script("GET", "/token", Refuse(429, headers={"retry-after": "7"}))
        async with client(fake) as registry:
            with pytest.raises(RegistryFault) as caught:
                await registry.document("a/b", "1")
        assert isinstance(caught.value.end, Throttled)
        assert caught.value.end.retry_after_s == 7.0


async def test_a_password_is_not_sent_to_a_token_service_by_plain_http_elsewhere():
    with open_fake_registry() as fake:
        fake.auth, fake.realm = "bearer", "http://198.51.100.1/token"
        async with client(fake, USER) as registry:
            with pytest.raises(RegistryFault, match="which is not https"):
                await registry.document("a/b", "1")


async def test_a_challenge_that_cannot_be_met_is_a_refusal():
    with open_fake_registry() as fake:
        challenge = {"www-authenticate": 'Negotiate, Bearer service="x", Digest realm="y"'}
        fake.script("GET", "/manifests/", Refuse(401, headers=challenge))
        async with client(fake, USER) as registry:
            with pytest.raises(RegistryFault, match="does not let us in"):
                await registry.document("a/b", "1")


# --- blobs that come


async def test_a_blob_comes_whole_and_from_the_middle():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        async with client(fake) as registry:
            assert await read(registry, digest) == DATA
            assert await read(registry, digest, 1000) == DATA[1000:]
            assert await has_blob(registry.requests, "a/b", digest)
            assert not await has_blob(registry.requests, "a/b", digest_of(b"other"))


@pytest.mark.parametrize("start", [0, 7])
async def test_a_blob_that_is_cut_goes_on_where_it_was(start: int):
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", Cut(10_000), Cut(0), Refuse(503), Cut(30_000))
        async with client(fake) as registry:
            assert await read(registry, digest, start) == DATA[start:]
        ranges = [call.headers.get("range") for call in fake.calls if "/blobs/" in call.path]
        at = [start, start + 10_000, start + 10_000, start + 10_000, start + 40_000]
        assert ranges == [f"bytes={place}-" if place else None for place in at]


async def test_a_server_without_ranges_gives_the_rest_all_the_same():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", Cut(10_000), Whole())
        async with client(fake) as registry:
            assert await read(registry, digest) == DATA


async def test_a_blob_that_is_cut_again_and_again_is_given_up():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", *[Cut(10)] * 9)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="6 times in a row") as caught:
                await read(registry, digest)
        assert isinstance(caught.value.end, Broken)
        assert fake.count("GET", "/blobs/") == 6


async def test_other_bytes_than_the_digests_are_unfit_at_the_end():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", Wrong(DATA[:-1] + b"!"))
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="another digest") as caught:
                await read(registry, digest)
        assert isinstance(caught.value.end, Unfit)


@pytest.mark.parametrize(("data", "why"), [(DATA[:-1], "6 times in a row"), (DATA + b"!", "longer than it should be")])
async def test_a_blob_of_another_length_than_its_manifest_says_is_refused(data: bytes, why: str):
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", *[Wrong(data)] * 9)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match=why):
                await registry.read_blob("a/b", Blob(digest, len(DATA)))
            with pytest.raises(RegistryFault, match="more than 10 bytes"):
                await registry.read_blob("a/b", Blob(digest, len(DATA)), 10)


async def test_a_redirect_is_followed_without_the_password():
    with open_fake_registry() as fake, open_fake_registry() as other:
        digest = fake.blob("a/b", DATA)
        other.blob("a/b", DATA)
        fake.auth, fake.users = "basic", {"u": "p"}
        target = f"http://{other.host}/elsewhere/a/b/blobs/{digest}"
        async with client(fake, USER) as registry:
            assert not await has_blob(registry.requests, "a/b", digest_of(b"other"))  # so that it is let in from now on
            fake.script("GET", "/blobs/", Redirect(target), Redirect(target))
            other.script("GET", "/blobs/", Cut(1000))
            assert await read(registry, digest) == DATA
        assert [call.headers.get("authorization") for call in other.calls if "/blobs/" in call.path] == [None, None]
        assert "range" in other.calls[-1].headers


async def test_redirects_in_a_circle_end():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.script("GET", "/blobs/", *[Redirect(f"/v2/a/b/blobs/{digest}")] * 99)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="redirected more than 5 times"):
                await read(registry, digest)


async def test_a_long_transfer_outlives_its_token():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        fake.auth = "bearer"
        fake.script("GET", "/blobs/", Cut(100))
        async with client(fake) as registry, open_blob(registry.requests, "a/b", digest) as pieces:
            with pytest.raises(RegistryFault):  # lets itself in
                await registry.document("a/b", "1")
            assert await anext(pieces) == DATA[:100]
            fake.tokens.clear()
            assert b"".join([piece async for piece in pieces]) == DATA[100:]


async def test_a_stream_that_is_left_early_closes_its_connection():
    with open_fake_registry() as fake:
        digest = fake.blob("a/b", DATA)
        async with client(fake) as registry:
            async with open_blob(registry.requests, "a/b", digest) as pieces:
                await anext(pieces)
            assert registry.requests.wire.client._transport._pool.connections == []  # type: ignore[attr-defined]


# --- blobs that go


@attrs.define
class Sent:
    """What is to be put there, and how far it was told to be."""

    data: bytes
    told: list[Transferred] = attrs.field(factory=list)
    reads: int = 0

    async def read_at(self, offset: int, count: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + count]

    @property
    def blob(self) -> Blob:
        return Blob(digest_of(self.data), len(self.data))

    async def put(self, registry: Registry, path: str = "a/b", source: str = "") -> None:
        await registry.put_blob(path, self.blob, self.read_at, self.told.append, source)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_upload, "PIECE_BYTES", 25_000)


async def test_a_small_blob_goes_in_one_piece_and_once():
    with open_fake_registry() as fake:
        sent = Sent(DATA)
        async with client(fake) as registry:
            await sent.put(registry)
            await sent.put(registry)
        assert fake.blobs["a/b"] == {sent.blob.digest: DATA}
        assert (fake.count("PATCH"), fake.count("PUT"), sent.reads) == (0, 1, 1)
        assert sent.told[-1] == Transferred(len(DATA), len(DATA))


async def test_a_small_blob_that_is_cut_goes_on_where_it_was():
    with open_fake_registry() as fake:
        fake.script("PUT", "/blobs/", Cut(100))
        async with client(fake) as registry:
            await Sent(DATA).put(registry)
        assert list(fake.blobs["a/b"].values()) == [DATA]
        assert [call.headers["content-length"] for call in fake.calls if call.method == "PUT"] == ["256000", "255900"]


async def test_an_empty_blob_can_be_put():
    with open_fake_registry() as fake:
        async with client(fake) as registry:
            await Sent(b"").put(registry)
        assert list(fake.blobs["a/b"].values()) == [b""]


async def test_a_large_blob_goes_in_pieces(small_pieces: None):
    with open_fake_registry() as fake:
        sent = Sent(DATA)
        async with client(fake) as registry:
            await sent.put(registry)
        assert list(fake.blobs["a/b"].values()) == [DATA]
        assert fake.count("PATCH") == 11
        done = [one.done_bytes for one in sent.told]
        assert done == sorted(done)
        assert {one.total_bytes for one in sent.told} == {len(DATA)}


@pytest.mark.parametrize(
    ("method", "troubles"),
    [
        ("PATCH", [Cut(12_000)]),
        ("PATCH", [Cut(0), Cut(24_999)]),
        ("PATCH", [Swallow()]),
        ("PATCH", [Refuse(503), Refuse(500)]),
        ("PATCH", [Forget()]),
        ("PUT", [Refuse(502)]),
        ("PUT", [Swallow()]),
        ("PUT", [Forget()]),
        ("POST", [Refuse(503), Cut(0)]),
        ("HEAD", [Refuse(503)]),
    ],
)
async def test_an_upload_that_is_disturbed_goes_on(small_pieces: None, method: str, troubles: list[Cut]):
    with open_fake_registry() as fake:
        fake.script(method, "/blobs/", *troubles)
        sent = Sent(DATA)
        async with client(fake) as registry:
            await sent.put(registry)
        assert list(fake.blobs["a/b"].values()) == [DATA]


async def test_after_a_cut_only_what_is_lacking_is_sent_again(small_pieces: None):
    with open_fake_registry() as fake:
        fake.script("PATCH", "/blobs/", Cut(12_000))
        async with client(fake) as registry:
            await Sent(DATA).put(registry)
        ranges = [call.headers["content-range"] for call in fake.calls if call.method == "PATCH"]
        assert ranges[:3] == ["0-24999", "12000-36999", "37000-61999"]


async def test_a_registry_that_takes_nothing_is_given_up(small_pieces: None):
    with open_fake_registry() as fake:
        fake.script("PATCH", "/blobs/", *[Refuse(202, headers={"range": "0-0"})] * 99)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="takes nothing of an upload"):
                await Sent(DATA).put(registry)
        assert fake.count("PATCH") == 6


async def test_a_registry_that_loses_each_upload_half_way_is_given_up(
    small_pieces: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry_retries, "PROGRESS_BYTES", 20_000)
    taken = Refuse(202, headers={"range": "0-24999"})
    with open_fake_registry() as fake:
        fake.script("PATCH", "/blobs/", *[taken, Forget()] * 99)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="times in a row"):
                await Sent(DATA).put(registry)
        assert fake.count("PATCH") < 20


async def test_a_blob_that_is_refused_is_not_sent_again():
    with open_fake_registry() as fake:
        fake.script("PUT", "/blobs/", Refuse(400, "DIGEST_INVALID", "provided digest did not match"))
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="DIGEST_INVALID"):
                await Sent(DATA).put(registry)
        assert fake.count("PUT") == 1


async def test_a_registry_that_names_no_place_is_told():
    with open_fake_registry() as fake:
        fake.script("POST", "/uploads/", *[Refuse(200)] * 9)
        async with client(fake) as registry:
            with pytest.raises(RegistryFault, match="does not say where to upload to"):
                await Sent(DATA).put(registry)


async def test_what_another_repository_has_is_not_sent():
    with open_fake_registry() as fake:
        sent = Sent(DATA)
        fake.blob("other/x", DATA)
        fake.auth, fake.users = "bearer", {"u": "p"}
        async with client(fake, USER) as registry:
            await sent.put(registry, source="other/x")
            assert sent.reads == 0
            await Sent(DATA[1:]).put(registry, source="other/x")  # it does not have that
        assert len(fake.blobs["a/b"]) == 2
        scopes = [scope for scopes in fake.tokens.values() for scope in scopes]
        assert "repository:other/x:pull" in scopes


async def test_an_upload_to_an_address_that_is_wrong_in_its_scheme_only_stays_here(
    authority: trustme.CA, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
):
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(registry_wire, "shared_context", lambda: trusting)
    with open_fake_registry(server_tls) as fake:
        fake.absolute = f"http://{fake.host}"
        async with client(fake) as registry:
            await Sent(DATA).put(registry)
        assert list(fake.blobs["a/b"].values()) == [DATA]


async def test_a_manifest_is_put_under_its_tag():
    with open_fake_registry() as fake:
        async with client(fake) as registry:
            config = Sent(b"{}")
            await config.put(registry)
            data = manifest_json(config.blob, [])
            await registry.put_manifest("a/b", "1", data, OCI_MANIFEST)
            assert (await registry.document("a/b", "1")).data == data
            wrong = Refuse(201, headers={"docker-content-digest": digest_of(b"other")})
            fake.script("PUT", "/manifests/", wrong)
            with pytest.raises(RegistryFault, match="for another one"):
                await registry.put_manifest("a/b", "1", data, OCI_MANIFEST)
