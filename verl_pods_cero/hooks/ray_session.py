"""A Hydra job from its start to its end: what it leaves in its folder, and one Ray session each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode

from verl_pods_cero.run_record import RunRecord

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

logger = logging.getLogger(__name__)


class RayPerJob(Callback):
    """Ends the job's Ray session with the job, and writes down in its folder how it ended.

    `verl.trainer.main_ppo` takes a running Ray as it finds it: without this, the second job of a
    multirun would run inside the session of the first, with that one's environment and resources.
    """

    def __init__(self) -> None:
        self._record: RunRecord | None = None

    def on_job_start(self, config: DictConfig, **_kwargs: Any) -> None:
        """Write down which process runs the job."""
        if config.hydra.output_subdir is not None:  # else the user wants no folder of Hydra's
            self._record = RunRecord.of_this_process()
            self._record.write(Path(config.hydra.runtime.output_dir))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_kwargs: Any) -> None:
        """Shut Ray down, if this process started it; write down what the job failed with, and log it in a multirun."""
        import ray

        error: Exception | None = None
        try:
            _ = job_return.return_value
        except Exception as caught:
            error = caught
        if self._record is not None:
            self._record.with_end(error).write(Path(config.hydra.runtime.output_dir))
        # Hydra prints the first failure at the end of the sweep, and logs none.
        if error is not None and config.hydra.mode == RunMode.MULTIRUN:
            if isinstance(error, CompactHydraException):  # a sentence says it all
                logger.error("this job failed, and the sweep goes on: %s", error)
            else:
                logger.error("this job failed; the sweep goes on", exc_info=error)
        if ray.is_initialized():
            ray.shutdown()
