"""The file source, against real files."""

from __future__ import annotations

import os
import threading

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scavenge.edge.sources.file import FileSource, read_endpoints_file
from scavenge.errors import SourceError
from scavenge.listings import Listing

ROW = b'[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://h/v1"\n'


def error_of(path) -> str:
    with pytest.raises(SourceError) as caught:
        read_endpoints_file(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable()
    return message


async def test_a_file_is_listed_as_it_is_at_each_asking(tmp_path):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(ROW)
    source = FileSource(file)
    first = await source.list_endpoints()
    file.write_bytes(ROW + ROW)
    second = await source.list_endpoints()
    assert first == Listing([{"endpoint_id": "a", "model": "m", "url": "http://h/v1"}], where=str(file))
    assert len(second.endpoints) == 2


async def test_a_file_that_cannot_be_read_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match="no such file"):
        await FileSource(tmp_path / "endpoints.toml").list_endpoints()


async def test_a_read_that_hangs_is_left_when_cancelled_and_the_next_waits_for_it(tmp_path, monkeypatch):
    go_on, reading = threading.Event(), []

    def hang(path):
        reading.append(path)
        go_on.wait()
        return Listing([])

    monkeypatch.setattr("scavenge.edge.sources.file.read_endpoints_file", hang)
    source = FileSource(tmp_path)
    for _ in range(2):
        with trio.move_on_after(0.05) as scope:
            await source.list_endpoints()
        assert scope.cancelled_caught
    assert len(reading) == 1
    go_on.set()
    assert await source.list_endpoints() == Listing([])


@pytest.mark.parametrize("data", [b"# nobody is here\n", b"endpoint = []\n"])
def test_an_explicit_empty_file_lists_nothing(tmp_path, data):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(data)
    assert read_endpoints_file(file).endpoints == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "half-written"),
        (b" \r\n\t\n", "half-written"),
        (ROW[:-3], "line 4, column"),
        (b"\xff\xfe[\x00", "UTF-16"),
        (b"endpoit = []", 'did you mean "endpoint"'),
        (b"[endpoint]\nurl = 1", r"[[endpoint]]"),
    ],
)
def test_a_file_in_the_making_is_no_listing(tmp_path, data, says):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(data)
    assert says in error_of(file)


def test_a_file_of_python_is_read_and_never_run(tmp_path):
    file = tmp_path / "endpoints.py"
    file.write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')\n")
    error_of(file)
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_file_a_folder_and_a_pipe_are_told_apart(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "no such file" in error_of(tmp_path / "none.toml")
    assert "folder" in error_of(tmp_path)
    assert "no regular file" in error_of(tmp_path / "pipe")


def test_a_file_below_a_file_cannot_be_read(tmp_path):
    (tmp_path / "file").write_bytes(ROW)
    assert "cannot be read: " in error_of(tmp_path / "file" / "endpoints.toml")


def test_a_path_that_no_system_takes_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be read"):
        read_endpoints_file(tmp_path / ("x" * 5000))


def test_an_unreadable_file_says_so(tmp_path, monkeypatch):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(ROW)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)  # a superuser may read every file
    assert "not readable for this user" in error_of(file)


def test_a_file_that_changes_while_it_is_read_is_no_listing(tmp_path, monkeypatch):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(ROW)
    fstat = os.fstat

    def fstat_then_grow(descriptor):
        state = fstat(descriptor)
        with file.open("ab") as writer:
            writer.write(b"# more\n")
        return state

    monkeypatch.setattr("os.fstat", fstat_then_grow)
    assert "changed while it was read" in error_of(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text().map(str.encode) | st.integers(0, len(ROW)).map(lambda length: ROW[:length]))
@example(b"endpoint = [" * 500)
@example(b"endpoint = [1979-05-27]")
def test_any_bytes_are_a_listing_or_a_source_error(tmp_path, data):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(data)
    try:
        said = read_endpoints_file(file)
    except SourceError as exc:
        said = str(exc)
    assert isinstance(said, Listing) or said.isprintable()


@pytest.mark.parametrize("length", range(len(ROW)))
def test_a_truncated_file_never_lists_a_whole_endpoint(tmp_path, length):
    file = tmp_path / "endpoints.toml"
    file.write_bytes(ROW[:length])
    try:
        listing = read_endpoints_file(file)
    except SourceError:
        return
    assert all("url" not in row for row in listing.endpoints) or ROW[length:] == b"\n"
