"""Make the quickstart's model and data once, and find them again."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.schema import parse
from verl_pods_cero.quickstart.model import ModelSettings

FOLDER_VARIABLE = "VERL_PODS_CERO_CACHE"
"""Environment variable for the folder that holds what is made, in place of ~/.cache/verl_pods_cero."""

RECORD = "settings.json"

FORMAT = 1
"""Raise it when the code below makes something else from the same settings."""


@dataclass(frozen=True)
class Settings:
    """What is made. Folders made with other settings are made again."""

    seed: int = 0
    train_prompts: int = 256
    validation_prompts: int = 128
    model: ModelSettings = field(default_factory=ModelSettings)

    def digest(self) -> str:
        """A short hash of the settings and of the format."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """The folder for all that is made once, as the recipes have it."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "verl_pods_cero")


def default_folder(seed: int = 0) -> Path:
    """The quickstart's folder in the cache: the recipe's `quickstart.folder` unless it is set."""
    return cache_folder() / "quickstart" / str(seed)


def is_prepared(folder: Path, settings: Settings) -> bool:
    """Whether `folder` holds a model and data made with `settings`."""
    return _made_with(folder) == settings.digest()


def _made_with(folder: Path) -> str | None:
    # The digest of the settings that the folder was made with, None if it is not one of ours.
    try:
        return str(json.loads((folder / RECORD).read_text())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure_prepared(folder: Path | None = None, settings: Settings | None = None, *, force: bool = False) -> Path:
    """Make the model and the data unless they are there.

    They are made next to `folder` and renamed, so that an interrupted run leaves nothing half-made
    and two runs at a time cannot mix.

    Args:
        folder: Where they belong; by default `default_folder(settings.seed)`.
        settings: What to make.
        force: Make them even if they are there.

    Returns:
        The folder, with `model/`, `train.parquet`, `validation.parquet` and `settings.json`.

    Raises:
        FileExistsError: the folder holds something else.
    """
    settings = settings or Settings()
    folder = folder or default_folder(settings.seed)
    if is_prepared(folder, settings) and not force:
        return folder
    if folder.exists() and _made_with(folder) is None and any(folder.iterdir()):
        raise FileExistsError(f"{folder} holds something else, and would be replaced")
    print(f"Making the quickstart's model and data in {folder}: once, for about 20 seconds.", flush=True)
    start = time.perf_counter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        made, replaced = Path(scratch) / "made", Path(scratch) / "replaced"
        _make(made, settings)
        if force or not is_prepared(folder, settings):
            if folder.exists():
                folder.rename(replaced)
            made.rename(folder)
    print(f"Made in {time.perf_counter() - start:.0f} s.", flush=True)
    return folder


def _make(folder: Path, settings: Settings) -> None:
    import pyarrow
    import pyarrow.parquet

    from verl_pods_cero.quickstart import model as models
    from verl_pods_cero.quickstart import tasks

    folder.mkdir()
    train, validation = tasks.split(settings.train_prompts, settings.validation_prompts, seed=settings.seed)
    for name, sums, first in (("train", train, 0), ("validation", validation, len(train))):
        table = pyarrow.Table.from_pylist(tasks.rows(sums, name, first_index=first))
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    tokenizer = models.make_tokenizer()
    model = models.make_model(settings.model, tokenizer, seed=settings.seed)
    loss = models.warm_start(model, tokenizer, tasks.all_sums(), settings.model, seed=settings.seed)
    models.save(model, tokenizer, folder / "model")
    record = {"digest": settings.digest(), "warm_start_loss": loss, "settings": asdict(settings)}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def requested(options: DictConfig) -> Settings:
    """Read what a recipe's `quickstart` node asks for.

    Raises:
        OptionError: the seed is none, or give_up is not a share for each level of difficulty.
    """
    seed = options.seed
    if not isinstance(seed, int) or seed < 0:
        raise OptionError("quickstart.seed", "must be a whole number, not negative", seed, "use 0")
    levels = len(ModelSettings().give_up)
    shares = tuple(options.get("give_up") or ())
    if len(shares) != levels or not all(isinstance(g, (int, float)) and 0.0 <= g <= 1.0 for g in shares):
        rule, fix = f"must be {levels} numbers from 0 to 1", "one for each level of difficulty, from easy to hard"
        raise OptionError("quickstart.give_up", rule, list(shares), fix)
    return Settings(seed=seed, model=ModelSettings(give_up=tuple(float(g) for g in shares)))


class PrepareQuickstart(Callback):
    """The Hydra callback that prepares the quickstart before verl's `main` looks for its files."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Prepare `config.quickstart.folder` with the node's settings.

        Raises:
            SystemExit: that failed. Hydra turns any other exception of a callback into a warning.
        """
        try:
            # A misspelt option is said now, and not after the model was made.
            parse(config)
            ensure_prepared(Path(config.quickstart.folder), requested(config.quickstart))
        except OptionError as error:
            raise SystemExit(str(error)) from error
        except OSError as error:
            raise SystemExit(
                f"quickstart.folder must be a folder that is new, or made by this command, and can be written, got "
                f"{config.quickstart.folder!r} ({error}). Fix: set quickstart.folder=<path>."
            ) from error
        except Exception as error:
            raise SystemExit(f"The quickstart's model or data cannot be made: {error!r}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python -m verl_pods_cero.quickstart prepare`."""
    parser = argparse.ArgumentParser(prog="python -m verl_pods_cero.quickstart prepare", description=__doc__)
    parser.add_argument("--force", action="store_true", help="make the model and the data again")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the data (default: 0)")
    parser.add_argument("--folder", type=Path, help=f"where (default: {default_folder()})")
    options = parser.parse_args(arguments)
    print(ensure_prepared(options.folder, Settings(seed=options.seed), force=options.force))
