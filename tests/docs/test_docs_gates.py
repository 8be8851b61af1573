"""What the pages say of gates and sessions is what the code has; the policy that authors copy is a right one."""

from __future__ import annotations

import sys
from types import ModuleType

import attrs
import pytest
from pages import blocks, keyed, read, section, table_rows, words
from test_reference import defaults, documented

import scavenge.signals
from scavenge.app.options import DEFAULT_POLICY
from scavenge.core.gates.ending import SERVING_S
from scavenge.core.limits import tide_brakes
from scavenge.core.limits.fixed import UNCAPPED_LIMIT
from scavenge.core.sessions.budget import TRUST, BudgetSettings
from scavenge.core.sessions.doorkeeper import COLD_AFTER_S
from scavenge.core.sessions.policy import MOST_LIVE, START_AHEAD
from scavenge.core.sessions.table import DEFAULT_POLICY as DEFAULT_SESSION_POLICY
from scavenge.core.sessions.table import SESSION_POLICIES
from scavenge.plugin import AdmissionPolicyType
from scavenge.plugins.builtin import BuiltinPlugin
from scavenge.runtime.gate import KEEP_S
from scavenge.runtime.gating import LOAD_EVERY_S
from scavenge.signals import Ended, Ending, Flow, GateView, WarmStart
from scavenge.status import SessionsStatus
from scavenge.types import CapChanged

FILE = read("reference/evaluation-file.md")
PLUGINS = section(read("reference/plugins.md"), "Signals")
GATES = " ".join(read("explanation/gates.md").split())
SESSIONS = " ".join(read("explanation/sessions.md").split())


def parts(table: str) -> tuple[dict[str, object], dict[str, str]]:
    """The keys of a table of the evaluation file, and what stands below the name of each of its policies."""
    head, *policies = section(FILE, f"`[{table}]`").split("\n### ")
    return documented(keyed(head)), {part.split("`")[1]: part for part in policies}


def admission_policies() -> dict[str, AdmissionPolicyType]:
    plugin = BuiltinPlugin(find_scorer=lambda name: pytest.fail(name))
    return {kind.name: kind for kind in plugin.scavenge_admission_policies()}


# --- the evaluation file


def test_every_admission_policy_is_there_with_its_keys_and_defaults():
    keys, told = parts("admission")
    assert keys == {"policy": DEFAULT_POLICY}
    kinds = admission_policies()
    assert {name: documented(keyed(part)) for name, part in told.items()} == {
        name: defaults(kind.config) for name, kind in kinds.items()
    }


def test_every_session_policy_is_there_with_its_keys_and_defaults():
    keys, told = parts("sessions")
    assert keys == {"policy": DEFAULT_SESSION_POLICY}
    assert {name: documented(keyed(part)) for name, part in told.items()} == {
        name: defaults(kind.config) for name, kind in SESSION_POLICIES.items()
    }


@pytest.mark.parametrize(("table", "names"), [("admission", admission_policies()), ("sessions", SESSION_POLICIES)])
def test_the_names_of_the_policies_stand_beside_their_key(table, names):
    cell = keyed(section(FILE, f"`[{table}]`").partition("\n### ")[0])["policy"][1]
    assert set(words(cell)) == set(names)


def test_what_fixed_gives_a_row_without_a_cap_is_told():
    _, told = parts("admission")
    assert f"and {UNCAPPED_LIMIT} for a row without one" in told["fixed"]
    assert f"and {UNCAPPED_LIMIT} for a row without one" in read("how-to/choose-a-gate.md")


# --- signals and views


def test_every_signal_is_there_with_its_fields():
    kinds = (CapChanged, *(kind for kind in vars(scavenge.signals).values() if attrs.has(kind)))
    fields = {kind.__name__: [field.name for field in attrs.fields(kind)] for kind in kinds if kind is not GateView}
    assert {name: words(cells[0]) for name, cells in keyed(PLUGINS).items() if "." not in name} == fields


def test_every_ending_is_there():
    assert {name for name in keyed(PLUGINS) if "." in name} - {"Ended.ending"} == {str(ending) for ending in Ending}


@pytest.mark.parametrize(
    ("kind", "page", "begins"),
    [
        (GateView, "reference/cli.md", "`gate` has"),
        (SessionsStatus, "reference/cli.md", "`sessions` has"),
        (GateView, "reference/plugins.md", "`GateView` has"),
        (GateView, "reference/library.md", "| `GateView` |"),
        (SessionsStatus, "reference/library.md", "| `SessionsStatus` |"),
    ],
)
def test_every_field_of_what_gates_show_is_there(kind, page, begins):
    told = words(read(page).partition(begins)[2].partition("\n\n")[0].partition("\n|")[0])
    fields = [field.name for field in attrs.fields(kind)]
    assert [word for word in told if word in fields][: len(fields)] == fields


# --- numbers in sentences


def test_the_numbers_of_the_page_on_gates_are_those_of_the_code():
    assert f"down to {tide_brakes.CUT:g} of what was in flight" in GATES
    assert f"within {KEEP_S / 60:g} minutes" in GATES
    assert f"more than {tide_brakes.FULL_CACHE:g} full" in GATES
    assert f"tells none for {tide_brakes.LOAD_FRESH_S:g} seconds" in GATES
    assert tide_brakes.LOOK_AHEAD == 2
    assert "gets two requests more than that at most" in GATES
    assert SERVING_S == 60.0
    assert "served within the last minute" in GATES
    assert f"every {LOAD_EVERY_S:g} seconds" in PLUGINS


def test_the_numbers_of_the_page_on_sessions_are_those_of_the_code():
    assert f"and {START_AHEAD} more that get ready" in SESSIONS
    assert f"{MOST_LIVE:,}".replace(",", " ") in SESSIONS
    settings = BudgetSettings()
    assert f"is {settings.fill:g} of what the servers' caches hold" in SESSIONS
    assert f"{settings.start_tokens:,} tokens an endpoint".replace(",", " ") in SESSIONS
    assert f"less than {TRUST:.0%} of it is seen".replace("%", " %") in SESSIONS
    assert f"for {COLD_AFTER_S:g} s does not count" in SESSIONS


def test_the_pages_name_the_same_policies_as_the_reference():
    told = {name for row in table_rows(section(read("explanation/gates.md"), "The other policies")) for name in row[:1]}
    assert {name.strip("`") for name in told} == {"policy", *admission_policies()} - {"tide"}
    told = {row[0].strip("`") for row in table_rows(section(read("explanation/sessions.md"), "The other policies"))}
    assert told == {"policy", *SESSION_POLICIES} - {"budget"}


# --- the policy that authors copy


@pytest.fixture(scope="module")
def shy() -> ModuleType:
    code, _ = blocks(read("how-to/write-an-admission-policy.md"), "python")
    module = ModuleType("scavenge_shy")
    exec(compile(code, "scavenge_shy.py", "exec"), module.__dict__)
    return module


def flow(in_flight: float, awaiting: float = 0.0) -> Flow:
    return Flow(5.0, in_flight, awaiting, output_tokens=100.0, in_flight_now=int(in_flight))


def test_the_policy_that_authors_copy_grows_by_one_in_a_window_that_it_bound_and_falls_with_a_queue(shy):
    (kind,) = shy.scavenge_admission_policies()
    policy = kind.create(kind.config())
    policy.observe(CapChanged(5), 0.0)
    limits = []
    for now, seen in enumerate([flow(4), flow(1), flow(5), flow(5), flow(5, awaiting=3.0)]):
        policy.observe(Ended(Ending.OK, 0.0, 1, 1.0), 5.0 * now)
        policy.observe(seen, 5.0 * now)
        limits.append(policy.limit(5.0 * now))
        assert policy.next_wake_at(5.0 * now) == 5.0 * (now + 1)
    assert limits == [5, 5, 5, 5, 4]
    assert policy.view(25.0) == GateView(4, "queue")


def test_the_policy_that_authors_copy_is_cut_once_by_a_burst_of_refusals(shy):
    policy = shy.Shy(shy.ShyConfig())
    policy.observe(WarmStart(30), 0.0)
    for number in range(20):
        policy.observe(Ended(Ending.RATE_LIMITED, 1.0 + number / 100, 30, 0.1), 2.0 + number / 100)
    assert policy.limit(3.0) == 20
    policy.observe(Ended(Ending.RATE_LIMITED, 3.0, 20, 0.1), 3.1)
    assert policy.limit(3.1) == 13


def test_the_checks_that_authors_copy_pass(shy, monkeypatch):
    monkeypatch.setitem(sys.modules, "scavenge_shy", shy)
    _, code = blocks(read("how-to/write-an-admission-policy.md"), "python")
    names: dict[str, object] = {}
    exec(compile(code, "test_shy.py", "exec"), names)
    checks = [check for name, check in names.items() if name.startswith("test_")]
    assert len(checks) == 2
    for check in checks:
        check()  # type: ignore[operator]  # each is a function
