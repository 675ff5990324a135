"""Every command ends the same way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verl_pods_cero.errors import OptionError, PluginError
from verl_pods_cero.tools import cli
from verl_pods_cero.tools.command_line import exit_status, refuse_to_overwrite, require


def ending(error: BaseException | None) -> int:
    def act() -> None:
        if error is not None:
            raise error

    return exit_status(act)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (OptionError("--n", "must be odd", 2, "use 3"), 2, "error: --n must be odd, got 2. Fix: use 3.\n"),
        (PluginError("no verl"), 1, "error: no verl\n"),
        (OSError("disk full"), 1, "error: disk full\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    error: BaseException | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(error) == status
    assert capsys.readouterr().err == said


def test_a_status_that_the_command_gives_is_kept() -> None:
    assert exit_status(lambda: 2) == 2


def test_a_mistake_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="a bug"):
        ending(ValueError("a bug"))


def test_packages_that_are_missing_are_named_together_with_the_fix() -> None:
    require("report", ("sys", "numpy"))
    with pytest.raises(PluginError, match=r"^report needs none_1 and none_2, which are not installed. Fix: do$"):
        require("report", ("none_1", "sys", "none_2"), "do")


def test_an_output_that_exists_is_replaced_only_where_the_user_asks_for_it(tmp_path: Path) -> None:
    refuse_to_overwrite(tmp_path / "new", "--out", overwrite=False)
    refuse_to_overwrite(tmp_path, "--out", overwrite=True)
    with pytest.raises(OptionError, match=r"^--out must be new, got '.*'\. Fix: add --force to replace it, or name"):
        refuse_to_overwrite(tmp_path, "--out", overwrite=False, flag="--force", rule="must be new")


def test_an_unknown_data_set_ends_the_whole_command_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "gms8k"]) == 2
    assert "did you mean 'gsm8k'" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    heavy = {"verl", "torch", "numpy", "pandas", "pyarrow", "matplotlib", "rich"}
    code = (
        "import sys\nfrom verl_pods_cero.tools import cli\n"
        "try: cli.main(['--help'])\n"
        f"except SystemExit: print('heavy:', *sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dry-run" in done.stdout and done.stdout.endswith("heavy:\n")
