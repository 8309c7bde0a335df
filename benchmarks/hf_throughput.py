"""Answers per second of `hf:` beside a bare transformers loop over the same model, texts and batch
size, in the same run.

    python -m benchmarks.hf_throughput [--model FOLDER] [--n 2000] [--batch 32] [--rounds 3]

Without --model a small checkpoint with random weights is made. The bare loop applies the chat
template, sorts by length, tokenizes and pads each batch and runs the model: what is lost to it is
the engine's cost. Best of the rounds of each.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.checkpoints import make_classifier

WORDS = "the cold water takes out most of a coffee stain if one rinses it from the back before it dries".split()


def make_samples(n: int, seed: int = 0) -> list[DataSample]:
    """Samples with one answer of 10 to 120 words each."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(10, 120))) for _ in range(n)]
    query = [ChatMessage(content="How do I get a coffee stain out of a shirt?")]
    return [
        DataSample(
            unique_id=str(i),
            input=query,
            output=[DataOutput(answer=Step(role=MessageRole.ASSISTANT, content=text))],
        )
        for i, text in enumerate(texts)
    ]


def bare_loop(folder: str, batch: int) -> Callable[[list[DataSample]], list[float]]:
    """What one would write by hand."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def score(samples: list[DataSample]) -> list[float]:
        texts = [
            tokenizer.apply_chat_template(
                [
                    *({"role": turn.role.value, "content": turn.text} for turn in sample.input),
                    {"role": "assistant", "content": sample.output[0].answer.text},
                ],
                tokenize=False,
            )
            for sample in samples
        ]
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]), reverse=True)
        scores = [0.0] * len(texts)
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                inputs = tokenizer(
                    [texts[place] for place in part],
                    padding=True,
                    return_tensors="pt",
                    add_special_tokens=False,
                )
                for place, value in zip(part, model(**inputs).logits[:, 0].tolist(), strict=True):
                    scores[place] = value
        return scores

    return score


def measure(folder: str, n: int, batch: int, rounds: int) -> tuple[float, float]:
    """Answers per second of the bare loop and of `hf:`, best of the rounds; both give the same
    scores.
    """
    samples = make_samples(n)
    loop = bare_loop(folder, batch)
    reward = RewardRegistry.create(f"hf:{folder}", batch_size=batch)
    expected, found = (
        loop(samples[: 2 * batch]),
        reward.evaluate_batch(samples[: 2 * batch], progress=False),
    )
    apart = max(
        abs(a - (b.output[0].answer.reward.score or 0.0))
        for a, b in zip(expected, found, strict=True)
    )
    assert apart < 1e-4, f"the scores are up to {apart} apart"
    bare = ours = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        loop(samples)
        bare = min(bare, time.perf_counter() - began)
        began = time.perf_counter()
        reward.evaluate_batch(samples, progress=False)
        ours = min(ours, time.perf_counter() - began)
    return n / bare, n / ours


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", help="folder of a sequence classification checkpoint with one label"
    )
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.model or str(make_classifier(Path(made) / "model"))
        bare, ours = measure(folder, options.n, options.batch, options.rounds)
    print(f"bare loop {bare:,.0f}/s, hf: {ours:,.0f}/s, {ours / bare:.0%} of it")


if __name__ == "__main__":
    main()
