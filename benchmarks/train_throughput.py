"""Generated preference pairs through `train_bradley_terry`: pairs, seconds and peak memory.

    python -m benchmarks.train_throughput [--pairs 100000] [--words 60]

Words follow Zipf's law; the chosen answer has a few more of the words that please, so that there is
something to learn. Every fourth prompt has two pairs. The samples are made while they are read, as
a loader makes them.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.train.bradley_terry import train_bradley_terry

VOCABULARY = 30_000
PLEASING, ANNOYING = (
    ("thanks", "gladly", "because", "carefully"),
    ("stupid", "whatever", "shut", "trash"),
)
LETTERS = np.array(list("etaoinshrdlucmfwygpb"))


def samples(pairs: int, words: int) -> Iterator[DataSample]:
    """Samples of one chosen and one rejected answer of about `words` words."""
    draw = np.random.default_rng(0)
    known = np.array(
        ["".join(draw.choice(LETTERS, size)) for size in draw.integers(2, 11, VOCABULARY)]
    )
    share = 1.0 / np.arange(1, VOCABULARY + 1)
    ends = np.cumsum(share / share.sum())
    for number in range(pairs):
        topic = known[np.searchsorted(ends, draw.random(6)).clip(max=VOCABULARY - 1)]
        outputs = []
        for label, marks in (("chosen", PLEASING), ("rejected", ANNOYING)):
            text = known[
                np.searchsorted(ends, draw.random(draw.poisson(words))).clip(max=VOCABULARY - 1)
            ].tolist()
            if draw.random() < 0.7:
                text.insert(len(text) // 2, str(draw.choice(marks)))
            answer = (
                ". ".join(
                    " ".join(text[at : at + 12]).capitalize() for at in range(0, len(text), 12)
                )
                + "."
            )
            step = Step(role=MessageRole.ASSISTANT, content=answer, label={"preference": label})
            outputs.append(DataOutput(answer=step))
        asked = f"Question {number - (number % 4 == 3)}: {' '.join(topic)}?"
        yield DataSample(unique_id=str(number), input=[ChatMessage(content=asked)], output=outputs)


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(
        description="Generated preference pairs through `train_bradley_terry`."
    )
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=60)
    asked = parser.parse_args()
    began, began_cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        report = train_bradley_terry(samples(asked.pairs, asked.words), folder)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    accuracy = report.held_out["model"].accuracy or 0.0
    print(
        f"{asked.pairs:,} pairs of answers of {asked.words} words: {seconds:.1f} s ({cpu:.1f} s "
        f"CPU), peak {peak:,.0f} MB, C={report.regularization:g}, held-out accuracy "
        f"{100 * accuracy:.1f} %"
    )


if __name__ == "__main__":
    main()
