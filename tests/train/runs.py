"""Made-up training runs: groups of completions with rewards, and ways of gaming them that are
known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WORDS = "the sum of all parts is a number that we find by adding one to each of them in turn and so on".split()


def run(
    seed: int = 0, hack: str = "", steps: int = 30, prompts: int = 8, size: int = 4
) -> list[dict[str, Any]]:
    """Rows of a run; with a hack its name says what goes wrong as the run goes on."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        late = step / max(1, steps - 1)
        for prompt in range(prompts):
            ease = rng.normal(0.3, 0.8)
            for _ in range(size):
                n = int(rng.lognormal(3.2, 0.4)) + 3
                right = float(rng.normal() < ease)
                style = float(np.clip(rng.normal(0.5, 0.15), 0, 1))
                beside: dict[str, Any] = {}
                start = ""
                if hack == "apart":
                    style, right = (
                        min(1.0, style + 0.4 * late),
                        float(right and rng.random() > 0.6 * late),
                    )
                elif hack == "traded" and rng.random() < late:
                    style, right = (0.95, 0.0) if rng.random() < 0.5 else (0.1, 1.0)
                elif hack == "length":
                    style = float(
                        np.clip(
                            (1 - late) * style + late * (n - 10) / 40 + rng.normal(0, 0.05), 0, 1
                        )
                    )
                elif hack == "longer":
                    n = int(n * (1 + late))
                elif hack == "phrase" and rng.random() < late:
                    start = "To answer your question in full, "
                elif hack == "alike" and late > 0.6:
                    n = 5
                elif hack == "unscored" and rng.random() < 0.5 * late:
                    style = None  # type: ignore[assignment]
                elif hack == "flat" and late > 0.6:
                    right, style = 1.0, 0.5
                if hack == "hollow":
                    beside["format"] = 1.0
                elif hack == "mirror":
                    beside["copy"] = right * 2 - 1
                words = WORDS[:n] if hack == "alike" and late > 0.6 else rng.choice(WORDS, n)
                text = start + " ".join(words)
                said = {"step": step, "prompt": f"q{step}-{prompt}", "completion": text}
                rows.append({**said, "right": right, "style": style, **beside})
    return rows
