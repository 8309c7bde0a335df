"""GRPO with TRL on the CPU: a tiny policy trained with a reward of RM-Gallery, and once more with a
plain function; the two curves are the same to the digit.

python train.py OUT [--steps 40] [--seed 0]
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from reward import ours, plain_says_it  # type: ignore[import-not-found]  # the file beside this one
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from rm_gallery.core.utils.svg import curves

ROWS = Path(__file__).with_name("rows.jsonl")
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")


def tiny_tokenizer(rows: list[dict[str, str]]) -> Any:
    """A tokenizer of the words of the rows."""
    words = sorted({word for row in rows for word in f"{row['prompt']} {row['wanted']}".split()})
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **names)


def tiny_model(tokenizer: Any, seed: int) -> Any:
    """A Llama of a few thousand parameters, whose weights the seed decides."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def train(reward: Callable[..., Any], folder: Path, steps: int, seed: int) -> list[float]:
    """The mean reward of each step."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    tokenizer = tiny_tokenizer(rows)
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        seed=seed,
        learning_rate=2e-2,
        lr_scheduler_type="constant",
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=4,
        beta=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny_model(tokenizer, seed),
        processing_class=tokenizer,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(rows),
        args=config,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]


def write(out: Path, series: dict[str, list[float]]) -> None:
    """The curves as curves.csv, a row per step, and as curves.svg."""
    rows = [[at, *values] for at, values in enumerate(zip(*series.values(), strict=True), 1)]
    with (out / "curves.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows([["step", *series], *rows])
    says = "The mean reward of each step, trained with either function."
    curves("curves", "Reward by step", series, "step", "mean reward", says).save(out / "curves.svg")


def main() -> None:
    """Train twice, write the curves and say whether they are the same."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    functions = {"rm_gallery": ours, "plain": plain_says_it}
    series = {
        name: train(function, given.out / name, given.steps, given.seed)
        for name, function in functions.items()
    }
    write(given.out, series)
    print("step", *(f"{name:>12}" for name in series))
    for at in range(0, given.steps, max(1, given.steps // 8)):
        print(f"{at + 1:4}", *(f"{values[at]:12.6f}" for values in series.values()))
    first, second = series.values()
    print("The curves are identical." if first == second else "The curves differ.")


if __name__ == "__main__":
    main()
