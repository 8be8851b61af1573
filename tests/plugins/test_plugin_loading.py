"""Plugins are found, asked and named; one that fails harms nobody who does not need it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import trio

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.edge.sources.file import FileSource
from scavenge.errors import ConfigError, PluginError
from scavenge.plugin import (
    AdmissionPolicyType,
    EndpointSource,
    EndpointSourceType,
    EndpointTemplate,
    EnvironmentType,
    FileStore,
    ImageStore,
    ImageStoreType,
    Listing,
    Scorer,
    StoreError,
    hookimpl,
    rest,
)
from scavenge.plugins.manager import load_plugins
from scavenge.plugins.registry import Clash, Plugin, Registry


@attrs.frozen
class Config:
    hosts: list[str]


@attrs.frozen(kw_only=True)
class Template(EndpointTemplate):
    FACTS: ClassVar[tuple[str, ...]] = ("address",)


class Undecorated(Template):
    port: int = 8000


@attrs.frozen(kw_only=True)
class OneFact(EndpointTemplate):
    FACTS: ClassVar[Any] = "address"


@attrs.frozen(kw_only=True)
class NumberedFact(EndpointTemplate):
    FACTS: ClassVar[Any] = (1,)


@attrs.frozen
class Typed:
    _type: str = ""


@attrs.frozen
class Aliased:
    kind: str = attrs.field(default="", alias="policy", metadata={"alias": None})


@attrs.frozen
class Reachable:
    type: str = attrs.field(default="", metadata={"alias": "api_client_type"})
    policy: str = ""
    computed: int = attrs.field(init=False, default=7)


@attrs.frozen
class RestOnce:
    where: str
    some: Mapping[str, int] = rest()


@attrs.frozen
class RestTwice:
    some: Mapping[str, int] = rest()
    more: Mapping[str, int] = rest()


@attrs.frozen
class RestCalledType:
    type: Mapping[str, int] = rest()


class Hosts:
    async def list_endpoints(self) -> Listing:
        await trio.lowlevel.checkpoint()
        return Listing([])


@asynccontextmanager
async def open_hosts(config: Config) -> AsyncIterator[EndpointSource]:
    yield Hosts()


@asynccontextmanager
async def open_drawer(config: Config) -> AsyncIterator[ImageStore]:
    raise StoreError("it is shut")
    yield


def score(reply: str, answer: object, row: object) -> float:
    return 0.5


class Good:
    @hookimpl
    def scavenge_endpoint_sources(self) -> list[EndpointSourceType]:
        return [EndpointSourceType(name="hosts", config=Config, open=open_hosts)]

    @hookimpl
    def scavenge_scorers(self) -> tuple[Scorer, ...]:
        return (Scorer("half", score),)

    @hookimpl
    def scavenge_image_stores(self) -> list[ImageStoreType]:
        return [ImageStoreType(name="drawer", config=Config, open=open_drawer, address="hosts")]


class Another:
    @hookimpl
    def scavenge_scorers(self) -> list[Scorer]:
        return [Scorer("half", score), Scorer("numeric", score), Scorer("third", score)]


def load(**plugins: object) -> Registry:
    return load_plugins({}, entry_points=(), plugins=plugins)


def failure(plugin: object) -> str:
    (_, failed) = load(bad=plugin).plugins
    assert failed.adds == ()
    return str(failed.error)


def names(plugin: Plugin, wanted: str) -> list[str]:
    """The names of a kind that a plugin adds."""
    return sorted(name for kind, name in plugin.adds if kind == wanted)


# --- what is there


def test_scavenge_registers_its_own_through_the_same_hooks() -> None:
    registry = load()
    assert registry.environment_names() == ("chat",)
    (own,) = registry.plugins
    assert (own.name, own.distribution, own.error) == ("scavenge", "scavenge", None)
    assert names(own, "endpoint source") == ["command", "file", "http", "simulated"]
    assert names(own, "admission policy") == ["aimd", "fixed", "gradient2", "pi", "tide"]
    assert names(own, "environment") == ["chat"]
    assert names(own, "scorer") == ["choice", "exact_match", "includes", "math", "none", "numeric", "regex"]
    assert names(own, "image store") == ["folder", "http", "registry"]


def test_the_fixed_policy_is_made_of_its_settings() -> None:
    kind = load().policy("fixed")
    assert kind.config is FixedSettings
    assert kind.create(FixedSettings(limit=7)).limit(0.0) == 7


async def test_the_file_source_is_opened_with_its_path(tmp_path: Path) -> None:
    kind = load().source_type("file")
    async with kind.open(kind.config(path=tmp_path / "endpoints.toml")) as source:
        assert isinstance(source, FileSource)
        assert source.path == tmp_path / "endpoints.toml"


async def test_the_folder_store_is_opened_with_its_path(tmp_path: Path) -> None:
    kind = load().image_store("folder")
    async with kind.open(kind.config(**{kind.address: tmp_path})) as store:
        assert isinstance(store, FileStore)
        assert await store.find("docker.io/library/x:1", "linux/amd64") is None


@pytest.mark.parametrize(("name", "key"), [("folder", "path"), ("http", "url"), ("registry", "prefix")])
def test_a_store_is_addressed_by_what_says_where_it_is(name: str, key: str) -> None:
    assert load().image_store(name).address == key


async def test_a_plugin_adds_what_its_hooks_return() -> None:
    registry = load(mine=Good())
    kind = registry.source_type("hosts")
    async with kind.open(Config(["a"])) as source:
        assert await source.list_endpoints() == Listing([])
    assert registry.scorer("half").score("a", "b", {}) == 0.5
    assert registry.owner(kind) == "mine"
    assert registry.owner(registry.image_store("drawer")) == "mine"
    adds = (("endpoint source", "hosts"), ("scorer", "half"), ("image store", "drawer"))
    assert registry.describe()[1] == Plugin("mine", adds=adds)


def test_a_descriptor_of_nobody_has_no_owner() -> None:
    with pytest.raises(LookupError, match="half"):
        load().owner(Scorer("half", score))


def test_a_module_is_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modulelike.py").write_text(
        "from scavenge.plugin import Scorer, hookimpl\n"
        "@hookimpl\n"
        "def scavenge_scorers():\n"
        "    return [Scorer('one', lambda reply, answer, row: 1.0)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import modulelike  # type: ignore[import-not-found]  # written above

    assert load(modulelike=modulelike).scorer("one").score("", "", {}) == 1.0


# --- names


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda registry: registry.source_type("fille"), 'source.type: unknown endpoint source "fille"; did you mean'),
        (
            lambda registry: registry.policy("fixd", "here"),
            'here: unknown admission policy "fixd"; did you mean "fixed"?',
        ),
        (lambda registry: registry.environment("chatt"), 'env_id: unknown environment "chatt"; did you mean "chat"?'),
        (
            lambda registry: registry.image_store("foldr"),
            'images.store.type: unknown image store "foldr"; did you mean "folder"?',
        ),
        (lambda registry: registry.scorer("numerik"), 'scorer: unknown scorer "numerik"; did you mean "numeric"?'),
        (lambda registry: registry.scorer("no:where", "here"), 'here: no module "no"'),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_one(ask: Any, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(load())
    assert error in str(caught.value)


def test_an_unknown_name_lists_the_plugins_that_failed() -> None:
    with pytest.raises(ConfigError, match=r"plugins not loaded: broken: implements no hook; is @hookimpl missing\?"):
        load(broken=object()).source_type("consul")


def test_a_name_of_two_plugins_stands_for_nothing_and_both_are_named() -> None:
    registry = load(one=Good(), other=Another())
    for name, owners in (("half", "one and other"), ("numeric", "other and scavenge")):
        with pytest.raises(PluginError) as caught:
            registry.scorer(name)
        assert f'plugin {owners}: each adds the scorer "{name}"' in str(caught.value)
    assert registry.scorer("third").name == "third"
    assert registry.source_type("hosts").name == "hosts"


# --- plugins that are wrong


def test_a_misspelt_hook_is_an_error() -> None:
    class Misspelt:
        @hookimpl
        def scavenge_scorer(self) -> list[Scorer]:
            return []

    assert failure(Misspelt()) == 'unknown hook "scavenge_scorer"; did you mean "scavenge_scorers"?'


def test_an_unknown_argument_is_an_error() -> None:
    class Asking:
        @hookimpl
        def scavenge_scorers(self, config: object) -> list[Scorer]:
            return []

    assert "config" in failure(Asking())


def test_a_plugin_that_cannot_be_looked_at_is_an_error() -> None:
    class Raising:
        @property
        def scavenge_scorers(self) -> object:
            raise RuntimeError("not now")

    class Closed:
        def __dir__(self) -> list[str]:
            raise RuntimeError("nothing to see")

    assert "implements no hook" in failure(Raising())
    assert "nothing to see" in failure(Closed())


async def late(self: object) -> list[Scorer]:
    await trio.lowlevel.checkpoint()
    return []


def lazy(self: object) -> Iterator[Scorer]:
    yield Scorer("half", score)


def leaving(self: object) -> list[Scorer]:
    sys.exit(1)


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (late, "scavenge_scorers is a coroutine function; a hook is a plain function"),
        (lazy, "scavenge_scorers returned a generator"),
        (leaving, "scavenge_scorers raised SystemExit: 1"),
        (lambda self: None, "scavenge_scorers returned nothing, expected a list of Scorer"),
        (lambda self: Scorer("half", score), "scavenge_scorers returned a Scorer"),
        (lambda self: EnvironmentType("a", Config, score), "scavenge_scorers returned an EnvironmentType"),  # type: ignore[arg-type]
        (lambda self: ["half"], 'scavenge_scorers returned "half" in its list, expected Scorer'),
        (lambda self: [score], "in its list, expected Scorer"),
        (lambda self: [Scorer("half", score)] * 2, 'scavenge_scorers returns two of the name "half"'),
        (lambda self: 1 / 0, "raised ZeroDivisionError: division by zero (test_plugin_loading.py, line "),
        (lambda self: [Scorer("", score)], "Scorer: name must be a non-empty string, got ''"),
        (lambda self: [Scorer(5, score)], "Scorer: name must be a non-empty string, got 5"),
        (lambda self: [Scorer("a:b", score)], "has a colon, which names a Python object"),
        (lambda self: [Scorer("half", 5)], "Scorer: score must be callable, got 5"),
        (
            lambda self: [Scorer("half", late)],
            "Scorer: score must be a plain function, got the coroutine function late",
        ),
    ],
)
def test_a_hook_that_breaks_the_rules_is_this_plugins_error(hook: Any, error: str) -> None:
    bad = type("Bad", (), {"scavenge_scorers": hookimpl(hook)})
    registry = load(bad=bad(), good=Good())
    assert registry.scorer("half").name == "half"
    assert error in str(registry.plugins[1].error)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: EndpointSourceType("a", dict, open_hosts), "EndpointSourceType: config must be an attrs class, got"),
        (lambda: AdmissionPolicyType("a", Config(["a"]), score), "AdmissionPolicyType: config must be an attrs class"),  # type: ignore[arg-type]
        (
            lambda: EndpointSourceType("a", Config, vars(open_hosts)["__wrapped__"]),
            "decorate open_hosts with contextlib.asynccontextmanager",
        ),
        (lambda: EnvironmentType("a", Config, late), "EnvironmentType: create must be a plain function"),
        (lambda: EnvironmentType("a", Config, partial(late)), "create must be a plain function, got the coroutine"),
        (
            lambda: EndpointSourceType("a", Config, late),
            "open must give an async context manager; `yield` what it opens in late and decorate it with context",
        ),
        (
            lambda: EndpointSourceType("a", Undecorated, open_hosts),
            "config Undecorated has only the keys of the attrs class that it derives from; decorate it with @attrs.fr",
        ),
        (
            lambda: EndpointSourceType("a", OneFact, open_hosts),
            "config OneFact: FACTS must be a tuple of strings, got 'address'; write FACTS: ",
        ),
        (lambda: EndpointSourceType("a", NumberedFact, open_hosts), r"FACTS must be a tuple of strings, got \(1,\)"),
        (
            lambda: EndpointSourceType("a", Typed, open_hosts),
            'EndpointSourceType: config Typed: the key "type" can never be set, since its table names the Endpoint',
        ),
        (
            lambda: ImageStoreType("a", Typed, open_drawer, "_type"),
            'ImageStoreType: config Typed: the key "type" can ne',
        ),
        (lambda: ImageStoreType("a", dict, open_drawer, "hosts"), "ImageStoreType: config must be an attrs class"),
        (lambda: ImageStoreType("a", Config, late, "hosts"), "ImageStoreType: open must give an async context manager"),
        (
            lambda: ImageStoreType("a", Config, open_drawer, None),  # type: ignore[arg-type]
            "ImageStoreType: address must be a string, the name of a field of config; got None",
        ),
        (lambda: AdmissionPolicyType("a", Aliased, Fixed), 'config Aliased: the key "policy" can never be set'),
        (
            lambda: EnvironmentType("a", RestTwice, score),  # type: ignore[arg-type]
            "EnvironmentType: config RestTwice: the fields some and more each take the rest of the keys; keep one",
        ),
        (
            lambda: EnvironmentType("a", Config, score, with_owner="yes"),  # type: ignore[arg-type]
            "EnvironmentType: with_owner must be True or False, got 'yes'",
        ),
    ],
)
def test_a_descriptor_checks_itself_where_it_is_written(make: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        make()


@pytest.mark.parametrize("address", ["host", "", "computed", "some"])
def test_the_address_of_a_store_is_a_key_of_its_configuration(address: str) -> None:
    config = {"computed": Reachable, "some": RestOnce}.get(address, Config)
    with pytest.raises(ValueError, match=f"config {config.__name__} has no key '{address}'; name one of its fields"):
        ImageStoreType("a", config, open_drawer, address)


def test_a_field_that_is_called_as_another_tables_name_or_has_another_key_is_none_of_these() -> None:
    assert EnvironmentType("a", Typed, score).config is Typed  # type: ignore[arg-type]
    assert EndpointSourceType("a", Aliased, open_hosts).config is Aliased
    assert AdmissionPolicyType("a", Typed, Fixed).config is Typed
    assert EndpointSourceType("a", Reachable, open_hosts).config is Reachable
    assert EndpointSourceType("a", RestCalledType, open_hosts).config is RestCalledType


def test_a_name_that_has_an_owner_takes_no_other() -> None:
    with pytest.raises(ValueError, match='name "org/env" has an owner already; leave with_owner out'):
        EnvironmentType("org/env", Config, score, with_owner=True)  # type: ignore[arg-type]
    assert not EnvironmentType("org/env", Config, score).with_owner  # type: ignore[arg-type]


# --- plugins that clash, and names that fit none


def test_names_that_several_plugins_add_are_told() -> None:
    registry = load(one=Good(), other=Another())
    assert registry.clashes() == (
        Clash("scorer", "numeric", ("other", "scavenge")),
        Clash("scorer", "half", ("one", "other")),
    )
    assert load(one=Good()).clashes() == ()


# --- installed plugins


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with two distributions: one plugin that works and one that cannot be imported."""
    for module, body in {
        "good_plugin": "from scavenge.plugin import Scorer, hookimpl\n@hookimpl\ndef scavenge_scorers():\n"
        "    return [Scorer('seven', lambda reply, answer, row: 7.0)]\n",
        "bad_plugin": "raise RuntimeError('no GPU here')\n",
        "leaving_plugin": "raise SystemExit(4)\n",
    }.items():
        (tmp_path / f"{module}.py").write_text(body)
        info = tmp_path / f"{module}_dist-1.2.dist-info"
        info.mkdir()
        name = module.replace("_", "-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[scavenge]\n{name} = {module}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def found(registry: Registry) -> dict[str, str | None]:
    names = ("good-plugin", "bad-plugin", "leaving-plugin")
    return {plugin.name: plugin.error for plugin in registry.describe() if plugin.name in names}


def test_installed_plugins_are_loaded_one_by_one(installed: Path) -> None:
    registry = load_plugins({})
    assert registry.scorer("seven").score("", "", {}) == 7.0
    assert found(registry) == {
        "good-plugin": None,
        "bad-plugin": "cannot be imported: RuntimeError: no GPU here (bad_plugin.py, line 1)",
        "leaving-plugin": "cannot be imported: SystemExit: 4 (leaving_plugin.py, line 1)",
    }
    good = next(plugin for plugin in registry.plugins if plugin.name == "good-plugin")
    assert good == Plugin("good-plugin", "good-plugin-dist", "1.2", (("scorer", "seven"),))
    with pytest.raises(ConfigError, match=r"bad-plugin \(bad-plugin-dist\): cannot be imported: RuntimeError: no GPU"):
        registry.scorer("eight")


def test_plugins_can_be_turned_off(installed: Path) -> None:
    off = "turned off by SCAVENGE_DISABLE_PLUGINS"
    assert set(found(load_plugins({"SCAVENGE_DISABLE_PLUGINS": "1"})).values()) == {off}
    some = found(load_plugins({"SCAVENGE_DISABLE_PLUGINS": " Good.Plugin , bad_plugin_dist"}))
    assert (some["good-plugin"], some["bad-plugin"]) == (off, off)
    assert some["leaving-plugin"] != off
    assert off not in found(load_plugins({"SCAVENGE_DISABLE_PLUGINS": ""})).values()
    assert "bad_plugin" not in sys.modules or sys.modules["bad_plugin"]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [("1", ()), ("", ()), ("good-plugin,Bad.Plugin_Dist", ()), ("1, Hots,scavenge", ("1", "Hots", "scavenge"))],
)
def test_what_is_turned_off_and_not_installed_is_known(installed: Path, text: str, unknown: tuple[str, ...]) -> None:
    assert load_plugins({"SCAVENGE_DISABLE_PLUGINS": text}).unknown_disabled == unknown


def test_the_environment_of_the_process_counts_by_default(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAVENGE_DISABLE_PLUGINS", "1")
    assert all(error is not None for error in found(load_plugins()).values())
    assert names(load_plugins().plugins[0], "endpoint source") == ["command", "file", "http", "simulated"]


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    assert load().plugins[0].version is None


def test_importing_loads_no_plugin_and_no_extra(installed: Path) -> None:
    code = """
        import sys
        import scavenge.plugin, scavenge.plugins.manager
        heavy = {"good_plugin", "pyarrow", "datasets", "math_verify", "sympy", "numpy"} & set(sys.modules)
        scavenge.plugins.manager.load_plugins({"SCAVENGE_DISABLE_PLUGINS": "1"})
        print(sorted(heavy | {"good_plugin", "pyarrow", "datasets", "math_verify"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(installed)},
    )
    assert done.stdout.strip() == "[]"
