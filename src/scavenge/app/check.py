"""``scavenge check``: reads a file, asks its sources once, looks at every endpoint and at this machine.

Starts nothing that stays and writes nothing. What was found is judged by :mod:`scavenge.core.check_report`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import trio

from scavenge.app.check_endpoint import look_at
from scavenge.app.check_images import look_at_engine, needs_images
from scavenge.app.check_sources import Gathered, merged, open_sources
from scavenge.app.console import screen_on_stderr
from scavenge.app.options import RunOptions, load
from scavenge.app.parts import make_parts, named_sources
from scavenge.config.plugin_keys import structure_plugin
from scavenge.config.schema import RunSettings
from scavenge.core.check_report import CheckReport, EndpointFinding, Machine, endpoint_table, engine_line, machine_line
from scavenge.core.documents import DocumentError, parse_toml
from scavenge.core.health_settings import HealthSettings
from scavenge.core.limits.fixed import FixedSettings
from scavenge.core.redaction import Redactor
from scavenge.core.roster import Roster
from scavenge.edge.console_table import table_text
from scavenge.edge.logs import set_up_logs
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelTransport
from scavenge.edge.sources.file import read_endpoints_file
from scavenge.errors import ConfigError, Problem, SourceError, single_error
from scavenge.types import Endpoint

AT_ONCE = 100
"""Endpoints looked at side by side."""
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def check_in_console(path: Path, *, as_json: bool) -> tuple[int, str]:
    """Check a file, and return the exit code and what belongs on standard output."""
    screen = screen_on_stderr()
    set_up_logs(screen, "warning")
    report = trio.run(check_file, path, os.environ, screen.redact)
    text = orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode() if as_json else report_text(report)
    return report.exit_code, screen.redact(text)


async def check_file(path: Path, environ: Mapping[str, str], redact: Redactor) -> CheckReport:
    """Everything there is to find about an evaluation or endpoints file.

    *redact* learns the API keys. Cancelled, it leaves nothing behind.
    """
    await trio.lowlevel.checkpoint()
    try:
        is_endpoints = is_endpoints_file(path)
    except DocumentError as exc:
        return CheckReport(str(path), "evaluation", _machine(None), (Problem(str(path), str(exc)),))
    with single_error():
        return await (_check_endpoints if is_endpoints else _check_evaluation)(path, environ, redact)


def is_endpoints_file(path: Path) -> bool:
    """Whether the content is an endpoints file's. One that cannot be read is left to the reader of evaluation files.

    Raises :class:`scavenge.core.documents.DocumentError` for a file that is no TOML, or both kinds of file.
    """
    try:
        document = parse_toml(path.read_bytes())
    except (OSError, ValueError) as exc:
        if isinstance(exc, DocumentError):
            raise
        return False
    if "endpoint" in document and "eval" in document:
        raise DocumentError("has [[endpoint]] and [[eval]]; put the endpoints into a file of their own")
    return "endpoint" in document or (not document and path.name == "endpoints.toml")


async def _check_endpoints(path: Path, environ: Mapping[str, str], redact: Redactor) -> CheckReport:
    gathered = Gathered(environ, redact, Roster.of(1))
    try:
        gathered.take(0, str(path), read_endpoints_file(path))
    except SourceError as exc:
        gathered.problems.append(Problem(str(path), str(exc).removeprefix(f"{path}: ")))
    endpoints = list(gathered.roster)
    findings = await _look_at_all(endpoints, HealthSettings().path)
    pools = tuple(dict.fromkeys(str(endpoint.endpoint_id) for endpoint in endpoints))
    warnings = (*gathered.warnings, *_proxy_warnings(endpoints, environ))
    return CheckReport(str(path), "endpoints", _machine(None), tuple(gathered.problems), warnings, pools, findings)


async def _check_evaluation(path: Path, environ: Mapping[str, str], redact: Redactor) -> CheckReport:
    await trio.lowlevel.checkpoint()
    try:
        parts = make_parts(load(path, RunOptions()), environ)
    except ConfigError as exc:
        return CheckReport(str(path), "evaluation", _machine(None), exc.problems)
    settings, sources = parts.settings, named_sources(parts)
    gathered = Gathered(environ, redact, Roster.of(len(sources)))
    for endpoint in parts.fixed:
        redact.hide_endpoint(endpoint.secret, endpoint.headers)
    wanted = tuple(dict.fromkeys(one.pool_id for one in settings.evals))
    fixed = {endpoint.endpoint_id for endpoint in parts.fixed}
    async with open_sources(sources, gathered, elastic=settings.elastic):
        gathered.miss([one for one in wanted if one not in fixed], elastic=settings.elastic)
        endpoints = merged(parts.fixed, gathered, wanted)
        findings = await _look_at_all(endpoints, settings.health.path)
    if not _writable(settings.output_dir):
        what = "new files cannot be written here; change the permissions, or output_dir"
        gathered.problems.append(Problem(str(settings.output_dir), what))
    warnings = (*gathered.warnings, *_proxy_warnings(endpoints, environ))
    return CheckReport(
        str(path),
        "evaluation",
        _machine(settings.output_dir),
        tuple(gathered.problems),
        warnings,
        wanted,
        findings,
        _fixed_admission(settings),
        await look_at_engine(settings.images) if needs_images(parts) else None,
    )


FIXED = "fixed"
"""The policy whose limits are known beforehand."""


def _fixed_admission(settings: RunSettings) -> FixedSettings | None:
    if settings.admission.policy != FIXED:
        return None
    return structure_plugin(FixedSettings, settings.admission.keys, settings.where.at("admission"), settings.base_dir)


async def _look_at_all(endpoints: Sequence[Endpoint], probe_path: str) -> tuple[EndpointFinding, ...]:
    transport, limiter = HttpModelTransport(), trio.CapacityLimiter(AT_ONCE)
    found: dict[int, EndpointFinding] = {}

    async def look(index: int, endpoint: Endpoint) -> None:
        async with limiter:
            found[index] = await look_at(endpoint, transport, probe_path)

    async with trio.open_nursery() as nursery:
        for index, endpoint in enumerate(endpoints):
            nursery.start_soon(look, index, endpoint)
    return tuple(found[index] for index in sorted(found))


def _proxy_warnings(endpoints: Sequence[Endpoint], environ: Mapping[str, str]) -> list[str]:
    found = [name for name in PROXY_VARIABLES if environ.get(name) or environ.get(name.lower())]
    direct = sum(endpoint.proxy is None for endpoint in endpoints)
    if not found or not direct:
        return []
    names = ", ".join(found)
    return [f"{names} set, but {direct} endpoints are reached without a proxy; name it as `proxy` in their rows"]


def _machine(output_dir: Path | None) -> Machine:
    descriptors = raise_descriptor_limit()
    if output_dir is None:
        return Machine(descriptors)
    return Machine(descriptors, str(output_dir), shutil.disk_usage(_existing(output_dir)).free)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _writable(output_dir: Path) -> bool:
    folder = _existing(output_dir)
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def report_text(report: CheckReport) -> str:
    """The report for people."""
    lines = [str(problem) for problem in report.problems]
    if report.endpoints:
        table = endpoint_table(report.endpoints)
        lines += [table_text(table.head, table.rows), machine_line(report)]
    if report.engine is not None:
        lines.append(engine_line(report.engine))
    lines += [f"warning: {warning}" for warning in (*report.warnings, *report.machine_warnings())]
    return "\n".join([*lines, report.verdict()])
