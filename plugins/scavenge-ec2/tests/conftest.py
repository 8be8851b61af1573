"""moto once for all tests, its instances and what stands in front of it anew for each; no test leaves this machine."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.loaders import create_loader
from ec2_double import REGION, TEMPLATE, Ec2Double, running_moto
from scavenge_ec2.config import Ec2Config

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _only_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Credentials that are worth nothing, no file of the user's, no instance metadata, no proxy."""
    nowhere = str(tmp_path_factory.getbasetemp() / "no-such-file")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFORTESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-for-tests")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture(autouse=True, scope="session")
def _one_loader() -> Iterator[None]:
    """The SDK reads its description of EC2 once for all clients, not half a second long for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", functools.cache(create_loader))
        yield


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    with running_moto() as port:
        yield port


@pytest.fixture
def double(moto_port: int) -> Iterator[Ec2Double]:
    """The proxy in front of moto."""
    with Ec2Double(moto_port).serving() as double:
        yield double


@pytest.fixture
def role() -> str:
    """The tag by which this test's instances are told from those of the others."""
    return f"vllm-{next(_numbers)}"


@pytest.fixture(scope="session")
def image(ec2: Any) -> str:
    """An image to launch."""
    image_id: str = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    return image_id


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the SDK would have paused before it asked again; it does not."""
    paused: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", types.SimpleNamespace(sleep=paused.append, time=time.time))
    return paused


@pytest.fixture(scope="session")
def ec2(moto_port: int) -> Iterator[Any]:
    """A client that makes and ends instances, past the proxy."""
    with contextlib.closing(_client(moto_port)) as client:
        yield client


@pytest.fixture(autouse=True)
def _asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source asks as often as a test does."""
    monkeypatch.setattr("scavenge_ec2.source.ASKED_EVERY_S", 0.0)


@pytest.fixture
def launch(ec2: Any, image: str, role: str) -> Callable[..., str]:
    """Launch one instance with these tags; its id."""

    def launch(*, spot: bool = False, **tags: object) -> str:
        named = [{"Key": key, "Value": str(value)} for key, value in {"role": role, **tags}.items()]
        more = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
        made = ec2.run_instances(
            ImageId=image,
            MinCount=1,
            MaxCount=1,
            InstanceType="g5.xlarge",
            TagSpecifications=[{"ResourceType": "instance", "Tags": named}],
            **more,
        )
        instance_id: str = made["Instances"][0]["InstanceId"]
        return instance_id

    return launch


@pytest.fixture
def config(double: Ec2Double, role: str) -> Ec2Config:
    """A source that finds what ``launch`` launches."""
    return Ec2Config(filters={"tag:role": role}, region=REGION, endpoint_url=double.url, **TEMPLATE)


def _client(moto_port: int) -> Any:
    return boto3.client(
        "ec2",
        endpoint_url=f"http://127.0.0.1:{moto_port}",
        region_name=REGION,
        aws_access_key_id="maker",
        aws_secret_access_key="maker",
    )
