"""Indices of folders, tar shards and tables: kept, mapped, made by one process, and made anew after a change."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.drawn import noise
from tests.data.layouts import csv, folder, tars

from reglet.data import index_file
from reglet.data.index_file import Index, kept_index
from reglet.data.shards import index_shards
from reglet.data.table import index_table
from reglet.data.walk import file_name, index_folder


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "CACHED_FROM", 1)
    monkeypatch.setattr(index_file, "_YOUNG", -1.0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files of the indices that were written."""
    files: list[Path] = []
    write = index_file._write

    def noted(file: Path, index: Index) -> None:
        files.append(file)
        write(file, index)

    monkeypatch.setattr(index_file, "_write", noted)
    return files


def later(path: Path) -> None:
    """As if it had been changed a second after it was."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 10**9))


def same(a: Index, b: Index) -> None:
    assert a.digest(*a.arrays) == b.digest(*b.arrays)
    assert [a.names[i] for i in range(len(a.names))] == [b.names[i] for i in range(len(b.names))]


def test_of_a_folder(tmp_path: Path, made: list[Path]) -> None:
    photos = Path(folder(tmp_path)["spec"]) / "train"
    first, again = (index_folder(photos, cache=tmp_path / "cache") for _ in range(2))
    assert len(made) == 1
    assert isinstance(first.names.ends, np.memmap)
    same(first, again)
    assert [file_name(again, i) for i in (0, 39)] == ["cat/00.png", "dog/19.png"]
    Image.new("RGB", (4, 4)).save(photos / "dog" / "new.png")
    later(photos / "dog")
    assert len(index_folder(photos, cache=tmp_path / "cache").names) == 41


def test_of_tar_shards(tmp_path: Path, made: list[Path]) -> None:
    shards = sorted(Path(tars(tmp_path)["spec"]).glob("train*.tar"))
    first, again = (index_shards(shards, cache=tmp_path / "cache") for _ in range(2))
    assert len(made) == 1
    assert isinstance(first.arrays["places"], np.memmap)
    same(first, again)
    assert first.about == {"classes": ["cat", "dog"]}
    os.truncate(shards[-1], 0)
    later(shards[-1])
    with pytest.raises(ValueError, match=r"cannot be read as a tar archive"):
        index_shards(shards, cache=tmp_path / "cache")


def test_of_a_table(tmp_path: Path, made: list[Path]) -> None:
    spec = csv(tmp_path)
    table, photos = Path(spec["table"]), Path(spec["spec"])
    first, again = (index_table(table, photos, cache=tmp_path / "cache") for _ in range(2))
    assert len(made) == 1
    assert isinstance(first.arrays["label"], np.memmap)
    same(first, again)
    assert first.about == {"names": {"label": ["cat", "dog"], "split": ["test", "train"]}}
    noise(999).save(photos / "eel.png")
    with table.open("a") as file:
        file.write("\neel.png,eel,train")
    later(table)
    assert index_table(table, photos, cache=tmp_path / "cache").about["names"]["label"] == ["cat", "dog", "eel"]


def test_a_large_folder_is_walked_once_for_all_who_ask_at_once(tmp_path: Path, made: list[Path]) -> None:
    photos = Path(folder(tmp_path)["spec"])
    ready, found = threading.Barrier(4), []

    def ask() -> None:
        ready.wait()
        found.append(index_folder(photos, cache=tmp_path / "cache"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    for other in found[1:]:
        same(found[0], other)


@pytest.mark.parametrize("spoilt", [b"", b"{}\n", b"\x00\xff" * 50, None])
def test_a_spoilt_index_is_made_anew(tmp_path: Path, made: list[Path], spoilt: bytes | None) -> None:
    photos = Path(folder(tmp_path)["spec"])
    first = index_folder(photos, cache=tmp_path / "cache")
    (file,) = made
    file.write_bytes(file.read_bytes()[:-100] if spoilt is None else spoilt)
    again = index_folder(photos, cache=tmp_path / "cache")
    assert len(made) == 2
    same(again, index_folder(photos, cache=tmp_path / "other"))
    assert len(first.names) == len(again.names)


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    photos = Path(folder(tmp_path)["spec"])
    (tmp_path / "cache").write_text("this is a file")
    assert len(index_folder(photos, cache=tmp_path / "cache").names) == 56


def test_what_changed_just_now_is_not_kept(tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change again within the resolution of the clock, and nobody would see."""
    monkeypatch.setattr(index_file, "_YOUNG", 60.0)
    index_folder(Path(folder(tmp_path)["spec"]), cache=tmp_path / "cache")
    assert not made


def test_times_are_those_of_before_the_index_was_made(tmp_path: Path) -> None:
    """A change while it is made is noticed the next time."""
    path = tmp_path / "x"
    path.write_text("1")

    def make() -> Index:
        times = index_file.modified(path)
        later(path)
        return Index(index_file.Names.of([path.name]), {}, {}, times)

    def ask() -> Index:
        return kept_index(["x"], make, lambda about: index_file.modified(path), cache=tmp_path / "cache")

    assert ask().times != ask().times
