"""``scavenge check``: reads a file, asks its sources once, looks at every endpoint and at this machine.

Starts nothing that stays and writes nothing. What was found is judged by :mod:`scavenge.core.check_report`.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import orjson
import trio

from scavenge.app.check_endpoint import look_at
from scavenge.app.console import screen_on_stderr
from scavenge.app.options import DEFAULT_POLICY, RunOptions, load
from scavenge.app.parts import make_parts, named_sources
from scavenge.config.endpoint_rows import check_listing
from scavenge.config.plugin_keys import structure_plugin
from scavenge.config.schema import RunSettings
from scavenge.core.check_report import CheckReport, EndpointFinding, Machine, endpoint_table, machine_line
from scavenge.core.documents import DocumentError, parse_toml
from scavenge.core.health import HealthSettings
from scavenge.core.limits.fixed import FixedSettings
from scavenge.core.redaction import Redactor
from scavenge.core.roster import never_listed, not_listed
from scavenge.edge.console_table import table_text
from scavenge.edge.logs import set_up_logs
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelTransport
from scavenge.edge.sources.file import read_endpoints_file
from scavenge.errors import ConfigError, Problem, SourceError, single_error
from scavenge.runtime.ports import EndpointSource
from scavenge.runtime.sources import NamedSource, use_source
from scavenge.types import Endpoint, EndpointId, Listing

SOURCE_WITHIN_S = 15.0
AT_ONCE = 100
"""Endpoints looked at side by side."""
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@attrs.define
class _Gathered:
    """What has been found so far."""

    problems: list[Problem] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    endpoints: list[Endpoint] = attrs.field(factory=list)

    def take(self, listing: Listing, environ: Mapping[str, str]) -> None:
        """Sort a listing into endpoints and problems."""
        checked = check_listing(listing, environ)
        self.endpoints.extend(checked.endpoints)
        self.problems.extend(problem for row in checked.bad for problem in row.problems)

    def miss(self, unlisted: Sequence[EndpointId], *, elastic: bool) -> None:
        """Tell of pools that no source lists; not where a source could not be read, which may have them."""
        if self.problems or self.warnings:
            return
        for endpoint_id in unlisted:
            why = not_listed(endpoint_id, self.endpoints)
            if elastic:
                self.warnings.append(f"endpoint_id {endpoint_id!r}: {why}; an elastic run waits for one")
            else:
                self.problems.append(never_listed(endpoint_id, why))


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
    gathered = _Gathered()
    try:
        gathered.take(read_endpoints_file(path), environ)
    except SourceError as exc:
        gathered.problems.append(Problem(str(path), str(exc).removeprefix(f"{path}: ")))
    findings = await _look_at_all(gathered, HealthSettings().path, redact)
    pools = tuple(dict.fromkeys(str(endpoint.endpoint_id) for endpoint in gathered.endpoints))
    return _report(path, "endpoints", gathered, pools, findings, _machine(None), environ)


async def _check_evaluation(path: Path, environ: Mapping[str, str], redact: Redactor) -> CheckReport:
    await trio.lowlevel.checkpoint()
    try:
        parts = make_parts(load(path, RunOptions()), environ)
    except ConfigError as exc:
        return CheckReport(str(path), "evaluation", _machine(None), exc.problems)
    settings, gathered = parts.settings, _Gathered()
    wanted = tuple(dict.fromkeys(one.pool_id for one in settings.evals))
    async with trio.open_nursery() as sources:
        for source in named_sources(parts):
            await sources.start(_ask_source, source, gathered, environ, settings.elastic)
        served = {one.endpoint_id for one in (*parts.fixed, *gathered.endpoints)}
        gathered.miss([one for one in wanted if one not in served], elastic=settings.elastic)
        gathered.endpoints = [one for one in (*parts.fixed, *gathered.endpoints) if one.endpoint_id in wanted]
        findings = await _look_at_all(gathered, settings.health.path, redact)
        sources.cancel_scope.cancel()
    if not _writable(settings.output_dir):
        what = "new files cannot be written here; change the permissions, or output_dir"
        gathered.problems.append(Problem(str(settings.output_dir), what))
    report = _report(path, "evaluation", gathered, wanted, findings, _machine(settings.output_dir), environ)
    return attrs.evolve(report, admission=_fixed_admission(settings))


def _fixed_admission(settings: RunSettings) -> FixedSettings | None:
    if settings.admission.policy != DEFAULT_POLICY:
        return None
    return structure_plugin(FixedSettings, settings.admission.keys, settings.where.at("admission"), settings.base_dir)


async def _ask_source(
    source: NamedSource,
    gathered: _Gathered,
    environ: Mapping[str, str],
    elastic: bool,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Open a source and take what it lists; started then. It stays open: what it lists may need it."""
    answered = False

    async def ask(opened: EndpointSource) -> None:
        nonlocal answered
        listing = await opened.list_endpoints()
        slow.deadline = math.inf
        gathered.take(listing, environ)
        answered = True
        task_status.started()
        await trio.sleep_forever()

    said = f"no answer within {SOURCE_WITHIN_S:g} s"
    with trio.move_on_after(SOURCE_WITHIN_S) as slow:
        end = await use_source(source, ask)
        said = end.why.removeprefix("died: ").removeprefix(f"{source.name}: ")
    if answered:
        gathered.warnings.append(f"{source.name}: {said}, after it had answered")
        return
    if elastic:
        gathered.warnings.append(f"{source.name}: {said}; an elastic run waits for it")
    else:
        gathered.problems.append(Problem(source.name, said))
    task_status.started()


async def _look_at_all(gathered: _Gathered, probe_path: str, redact: Redactor) -> tuple[EndpointFinding, ...]:
    redact.hide(endpoint.secret for endpoint in gathered.endpoints if endpoint.secret is not None)
    transport, limiter = HttpModelTransport(), trio.CapacityLimiter(AT_ONCE)
    found: dict[int, EndpointFinding] = {}

    async def look(index: int, endpoint: Endpoint) -> None:
        async with limiter:
            found[index] = await look_at(endpoint, transport, probe_path)

    async with trio.open_nursery() as nursery:
        for index, endpoint in enumerate(gathered.endpoints):
            nursery.start_soon(look, index, endpoint)
    return tuple(found[index] for index in sorted(found))


def _report(
    path: Path,
    kind: str,
    gathered: _Gathered,
    pools: tuple[str, ...],
    findings: tuple[EndpointFinding, ...],
    machine: Machine,
    environ: Mapping[str, str],
) -> CheckReport:
    warnings = [*gathered.warnings, *_proxy_warnings(gathered, environ)]
    return CheckReport(str(path), kind, machine, tuple(gathered.problems), tuple(warnings), pools, findings)


def _proxy_warnings(gathered: _Gathered, environ: Mapping[str, str]) -> list[str]:
    found = [name for name in PROXY_VARIABLES if environ.get(name) or environ.get(name.lower())]
    direct = sum(endpoint.proxy is None for endpoint in gathered.endpoints)
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
    lines += [f"warning: {warning}" for warning in (*report.warnings, *report.machine_warnings())]
    return "\n".join([*lines, report.verdict()])
