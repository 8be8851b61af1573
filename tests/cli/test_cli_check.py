from __future__ import annotations

import json
import re
import resource
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from scavenge.app import parts
from scavenge.app.check import check_file, report_text
from scavenge.cli.main import exit_status
from scavenge.core.limits.fixed import UNCAPPED_LIMIT, Fixed, FixedSettings
from scavenge.core.redaction import Redactor
from scavenge.edge.http.tls import shared_context
from scavenge.plugin import AdmissionPolicyType, hookimpl
from scavenge.plugins.manager import load_plugins

OK = "200 OK"


async def answer(stream: trio.abc.Stream, status: str, body: str) -> None:
    """Answer one request, whatever it is."""
    await trio.lowlevel.checkpoint()
    try:
        async with stream:
            if await stream.receive_some(65536):
                head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                await stream.send_all((head + body).encode())
    except trio.BrokenResourceError:
        pass  # the client hung up


def models(*names: str) -> str:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names]})


@asynccontextmanager
async def serving(body: str = models("glm"), status: str = OK, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on a free port that says the same to everybody; gives its URL."""
    async with trio.open_nursery() as nursery:
        handler = partial(answer, status=status, body=body)
        serve: Callable[..., object] = partial(trio.serve_tcp, handler, 0, host="127.0.0.1")
        if tls is not None:
            serve = partial(trio.serve_ssl_over_tcp, handler, 0, tls, host="127.0.0.1")
        listeners = await nursery.start(serve)
        socket = getattr(listeners[0], "transport_listener", listeners[0]).socket
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{socket.getsockname()[1]}/v1"
        nursery.cancel_scope.cancel()


def row(url: str, **keys: object) -> str:
    table = {"endpoint_id": "glm", "model": "glm", "url": url, **keys}
    return "[[endpoint]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def written(folder: Path, text: str, name: str = "endpoints.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


EVAL = """
elastic = {elastic}
[admission]
policy = "fixed"
{admission}
[[source]]
type = "file"
path = "endpoints.toml"
[[eval]]
env_id = "chat"
endpoint_id = "{pool}"
env_args = {{ dataset = "rows.jsonl" }}
"""


def evaluation(folder: Path, pool: str = "glm", *, elastic: bool = True, admission: str = "") -> Path:
    written(folder, '{"question": "1 + 1?", "answer": "2"}\n', "rows.jsonl")
    text = EVAL.format(pool=pool, elastic=str(elastic).lower(), admission=admission)
    return written(folder, text, "eval.toml")


async def test_an_endpoint_that_serves_the_model_is_healthy(tmp_path):
    async with serving() as url:
        report = await check_file(written(tmp_path, row(url, max_concurrent=8)), {}, Redactor())
    (found,) = report.endpoints
    assert (report.exit_code, report.kind) == (0, "endpoints")
    assert (found.outcome, found.listed, found.addresses) == ("healthy", True, "127.0.0.1")
    assert (found.key, found.proxy, found.tls) == ("none", "none", "none")


async def test_one_usable_endpoint_of_a_pool_is_enough(tmp_path):
    async with serving() as url:
        text = row("http://127.0.0.1:9/v1") + row(url)
        report = await check_file(written(tmp_path, text), {}, Redactor())
    assert [found.outcome for found in report.endpoints] == ["lost", "healthy"]
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("body", "status", "outcome", "said"),
    [
        (models("qwen"), OK, "misrouted", "qwen"),
        ("no such key", "401 Unauthorized", "misrouted", "401"),
        ("not yet", "503 Service Unavailable", "busy", "not yet"),
    ],
)
async def test_what_the_server_says_is_told(tmp_path, body, status, outcome, said):
    async with serving(body, status) as url:
        report = await check_file(written(tmp_path, row(url)), {}, Redactor())
    assert report.endpoints[0].outcome == outcome
    assert ("misconfigured" in report_text(report)) is (outcome == "misrouted")
    assert said in report.endpoints[0].said
    assert report.exit_code == 4


async def test_a_server_without_a_list_of_models_is_healthy_but_not_confirmed(tmp_path):
    async with serving("", "404 Not Found") as url:
        report = await check_file(written(tmp_path, row(url)), {}, Redactor())
    assert report.exit_code == 0
    assert "glm (not confirmed)" in report_text(report)


async def test_a_key_is_named_and_never_shown_even_when_the_server_repeats_it(tmp_path):
    environ, redact = {"GLM_ACCESS": "opal-zebra"}, Redactor()
    async with serving("wrong key opal-zebra", "403 Forbidden") as url:
        report = await check_file(written(tmp_path, row(url, key="GLM_ACCESS")), environ, redact)
    assert report.endpoints[0].key == "GLM_ACCESS, set"
    assert "opal-zebra" not in report_text(report)
    assert redact("opal-zebra") == "[secret]"


async def test_a_header_that_holds_a_key_is_never_shown_even_when_the_server_repeats_it(tmp_path):
    redact = Redactor()
    async with serving("wrong key amber-lynx-23", "403 Forbidden") as url:
        text = row(url, endpoint_id="unused", headers={"x-api-key": "jade-otter-31"})
        written(tmp_path, row(url, headers={"x-api-key": "amber-lynx-23"}) + text)
        report = await check_file(evaluation(tmp_path), {}, redact)
    assert "amber-lynx" not in redact(report_text(report))
    assert redact("amber-lynx-23, jade-otter-31") == "[secret], [secret]"


async def test_a_key_that_is_not_set_is_a_wrong_file_and_the_other_rows_are_still_looked_at(tmp_path):
    async with serving() as url:
        text = row("http://127.0.0.1:9/v1", key="GLM_ACCESS") + row(url)
        report = await check_file(written(tmp_path, text), {}, Redactor())
    assert report.exit_code == 2
    assert "GLM_ACCESS" in report_text(report)
    assert [found.outcome for found in report.endpoints] == ["healthy"]


async def test_a_certificate_that_is_refused_is_told(tmp_path):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with serving(tls=tls) as url:
        report = await check_file(written(tmp_path, row(url)), {}, Redactor())
    assert report.endpoints[0].outcome == "misrouted"
    assert "certificate" in report.endpoints[0].tls
    assert report.exit_code == 4


async def test_a_certificate_that_is_trusted_is_told_with_its_end(tmp_path):
    tls, authority = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(shared_context())
    async with serving(tls=tls) as url:
        report = await check_file(written(tmp_path, row(url)), {}, Redactor())
    assert report.endpoints[0].outcome == "healthy"
    assert re.fullmatch(r"TLSv1.3, certificate until \d{4}-\d\d-\d\d", report.endpoints[0].tls)


async def test_an_unknown_host_is_told_for_name_and_tls(tmp_path):
    report = await check_file(written(tmp_path, row("https://nobody.invalid/v1")), {}, Redactor())
    (found,) = report.endpoints
    assert found.outcome == "lost"
    assert found.addresses.startswith("nobody.invalid: ")
    assert found.tls.startswith("failed: ")


async def test_a_proxy_is_told_without_its_password_and_the_way_leads_through_it(tmp_path):
    async with serving() as url:
        proxy = url.replace("http://", "http://me:opal-zebra@").removesuffix("/v1")
        text = row("http://nobody.invalid/v1", proxy=proxy) + row("https://nobody.invalid/v1", proxy=proxy)
        report = await check_file(written(tmp_path, text), {}, Redactor())
    plain, secure = report.endpoints
    assert plain.outcome == "healthy"
    assert (plain.proxy, plain.addresses) == (url.removeprefix("http://").removesuffix("/v1"), "127.0.0.1")
    assert secure.tls == "through the proxy"
    assert "opal-zebra" not in report_text(report)


async def test_proxies_of_the_environment_are_warned_of_and_not_used(tmp_path):
    async with serving() as url:
        environ = {"https_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        report = await check_file(written(tmp_path, row(url)), environ, Redactor())
    assert report.exit_code == 0
    assert "warning: HTTP_PROXY, HTTPS_PROXY set, but 1 endpoints are reached without a proxy" in report_text(report)


async def test_a_draining_endpoint_serves_no_pool(tmp_path):
    async with serving() as url:
        report = await check_file(written(tmp_path, row(url, draining=True)), {}, Redactor())
    assert report.exit_code == 4


async def test_an_evaluation_file_leads_to_its_endpoints(tmp_path):
    async with serving() as url:
        written(tmp_path, row(url) + row(url, endpoint_id="unused"))
        report = await check_file(evaluation(tmp_path), {}, Redactor())
    assert (report.exit_code, report.kind, report.problems) == (0, "evaluation", ())
    assert [found.endpoint_id for found in report.endpoints] == ["glm"]
    assert f"free in output_dir {tmp_path / 'runs'}" in report_text(report)
    assert not (tmp_path / "runs").exists()


async def test_a_pool_that_is_not_listed_has_no_endpoint(tmp_path):
    written(tmp_path, "endpoint = []")
    report = await check_file(evaluation(tmp_path, pool="other"), {}, Redactor())
    assert report.exit_code == 4
    assert report.unserved == ("other",)
    assert "warning: endpoint_id 'other': no endpoint is listed; an elastic run waits for one" in report_text(report)


async def test_an_id_that_no_row_has_is_a_problem_with_the_nearest_one_unless_the_run_is_elastic(tmp_path):
    written(tmp_path, row("http://127.0.0.1:9/v1"))
    fixed = await check_file(evaluation(tmp_path, pool="gln", elastic=False), {}, Redactor())
    why = "no endpoint has this id; listed are 'glm'; did you mean 'glm'?"
    assert fixed.exit_code == 2
    assert [str(one) for one in fixed.problems] == [
        f"endpoint_id 'gln': {why}; with elastic = false nothing is asked again"
    ]
    elastic = await check_file(evaluation(tmp_path, pool="gln"), {}, Redactor())
    assert (elastic.exit_code, elastic.problems) == (4, ())
    assert elastic.warnings == (f"endpoint_id 'gln': {why}; an elastic run waits for one",)


async def test_a_server_that_an_eval_names_itself_is_no_id_to_choose(tmp_path):
    written(tmp_path, "endpoint = []")
    file = evaluation(tmp_path, elastic=False)
    one = '[[eval]]\nenv_id = "chat"\nname = "b"\nmodel = "glm"\napi_base_url = "http://127.0.0.1:9/v1"\n'
    file.write_text(file.read_text() + one + 'env_args.dataset = "rows.jsonl"\n')
    (problem,) = (await check_file(file, {}, Redactor())).problems
    assert str(problem) == "endpoint_id 'glm': no endpoint is listed; with elastic = false nothing is asked again"


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """A soft limit below the hard one, which it gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard - 1), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_slots_are_compared_with_the_descriptors_that_a_run_gets(tmp_path, few_descriptors):
    report = await check_file(written(tmp_path, row("http://127.0.0.1:9/v1", max_concurrent=150)), {}, Redactor())
    assert report.machine.descriptors == few_descriptors
    assert report.machine_warnings() == []


@pytest.mark.parametrize(("admission", "slots"), [("", UNCAPPED_LIMIT), ("limit = 7", 7)])
async def test_an_endpoint_without_a_cap_has_the_slots_that_the_fixed_policy_gives(tmp_path, admission, slots):
    written(tmp_path, row("http://127.0.0.1:9/v1"))
    report = await check_file(evaluation(tmp_path, admission=admission), {}, Redactor())
    assert f" file descriptors for {slots} slots; " in report_text(report)


class Adaptive:
    """A plugin with a policy of its own, whose settings happen to look like those of `fixed`."""

    @hookimpl
    def scavenge_admission_policies(self) -> list[AdmissionPolicyType]:
        return [AdmissionPolicyType("adaptive", FixedSettings, Fixed)]


async def test_under_another_policy_than_fixed_an_endpoint_without_a_cap_is_told_to_have_none(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "load_plugins", lambda environ: load_plugins(environ, plugins={"a": Adaptive()}))
    written(tmp_path, row("http://127.0.0.1:9/v1"))
    file = evaluation(tmp_path, admission="limit = 7")
    file.write_text(file.read_text().replace('"fixed"', '"adaptive"'))
    report = await check_file(file, {}, Redactor())
    assert " file descriptors for 0 slots and 1 endpoint with no cap; " in report_text(report)


async def test_where_no_policy_is_known_an_endpoint_without_a_cap_is_told_to_have_none(tmp_path):
    report = await check_file(written(tmp_path, row("http://127.0.0.1:9/v1")), {}, Redactor())
    assert " file descriptors for 0 slots and 1 endpoint with no cap" in report_text(report)


async def test_a_missing_endpoints_file_can_be_waited_for_only_by_an_elastic_run(tmp_path):
    elastic = await check_file(evaluation(tmp_path), {}, Redactor())
    assert (elastic.exit_code, elastic.problems) == (4, ())
    assert "an elastic run waits for it" in report_text(elastic)
    assert (await check_file(evaluation(tmp_path, elastic=False), {}, Redactor())).exit_code == 2


async def test_a_fixed_server_is_looked_at(tmp_path):
    written(tmp_path, '{"question": "1 + 1?", "answer": "2"}\n', "rows.jsonl")
    async with serving() as url:
        text = f'admission.policy = "fixed"\n[[eval]]\nenv_id = "chat"\nmodel = "glm"\napi_base_url = "{url}"\n'
        report = await check_file(
            written(tmp_path, text + 'env_args.dataset = "rows.jsonl"\n', "eval.toml"), {}, Redactor()
        )
    assert report.exit_code == 0


async def test_an_output_dir_that_cannot_be_written_is_a_problem(tmp_path):
    written(tmp_path, "no folder", "runs")
    written(tmp_path, "endpoint = []")
    report = await check_file(evaluation(tmp_path), {}, Redactor())
    assert report.exit_code == 2
    assert str(tmp_path / "runs") in report_text(report)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[endpoint]]\n[[eval]]\n", "put the endpoints into a file of their own"),
        ("[[endpoint", "line 1"),
        ("[[endpoint]]\nurl = 3\n", "endpoint[0].url"),
        ("[[endpoint]]\n[other]\n", "unknown key other"),
        ("[[eval]]\n", "eval[0].env_id"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_wrong_file_is_exit_code_2(tmp_path, capsys, text, says):
    (tmp_path / "some.toml").write_text(text, errors="surrogateescape")
    assert exit_status(["check", str(tmp_path / "some.toml")]) == 2
    told = capsys.readouterr()
    assert says in told.out
    assert told.err == ""


def test_a_missing_file_is_exit_code_2_in_json_too(tmp_path, capsys):
    assert exit_status(["check", str(tmp_path / "none.toml"), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == 2
    assert "no such file" in report["problems"][0]


def test_an_empty_listing_is_right_but_leads_nowhere(tmp_path, capsys):
    assert exit_status(["check", str(written(tmp_path, "# none yet\n"))]) == 4
    assert "there is no endpoint" in capsys.readouterr().out
