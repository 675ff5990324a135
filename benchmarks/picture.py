"""The picture of the README, from the headline's logs: `make reproduce` draws it anew."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

LOGS = Path(__file__).parent.parent / "docs/results/headline"
PICTURE = Path(__file__).parent.parent / "docs/images/headline/picture.svg"
ACCURACY = "val-core/verl_pods_cero/sums/acc/mean@1"
ARMS = {
    "pods": ("PODS: the 4 of 16 that differ most", "#0b6e4f", "-"),
    "grpo_all": ("GRPO: all 16", "#333333", "-"),
    "pods_random": ("4 of 16 at random", "#c46210", "--"),
    "pods_max_reward": ("the 4 best of 16", "#8a4fa3", "--"),
}


def curve(log: Path) -> tuple[list[float], list[float]]:
    """Return seconds of training steps and accuracy at each validation of a run."""
    seconds, at, accuracy = 0.0, [], []
    for line in log.read_text().splitlines():
        data = json.loads(line)["data"]
        seconds += data.get("timing_s/step", 0.0)
        if ACCURACY in data:
            at.append(seconds)
            accuracy.append(data[ACCURACY])
    return at, accuracy


def draw() -> None:
    """Draw the mean accuracy over seeds against seconds, as far as every seed of an arm goes."""
    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "picture"})
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    for arm, (label, colour, style) in ARMS.items():
        curves = [curve(log) for log in sorted(LOGS.glob(f"{arm}-seed*.jsonl"))]
        grid = np.linspace(0, min(at[-1] for at, _ in curves), 60)
        means = np.mean([np.interp(grid, at, accuracy) for at, accuracy in curves], axis=0)
        axes.plot(grid, means, style, color=colour, label=label)
    axes.set(xlabel="seconds of training steps", ylabel="validation accuracy", ylim=(None, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right", title="16 rollouts per prompt, updated on")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
