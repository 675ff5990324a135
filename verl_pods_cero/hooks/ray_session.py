"""One Ray session a Hydra job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

logger = logging.getLogger(__name__)


class RayPerJob(Callback):
    """Ends the job's Ray session with the job.

    `verl.trainer.main_ppo` takes a running Ray as it finds it: without this, the second job of a
    multirun would run inside the session of the first, with that one's environment and resources.
    """

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_kwargs: Any) -> None:
        """Shut Ray down, if this process started it; log what a job of a multirun failed with."""
        import ray

        # Hydra prints the first failure at the end of the sweep, and logs none.
        if config.hydra.mode == RunMode.MULTIRUN:
            try:
                _ = job_return.return_value
            except CompactHydraException as error:  # a sentence says it all
                logger.error("this job failed, and the sweep goes on: %s", error)
            except Exception:
                logger.exception("this job failed; the sweep goes on")
        if ray.is_initialized():
            ray.shutdown()
