"""Tiny checkpoints with random weights, made on the spot: nothing is downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHAT = "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content | trim }}<|end|>\n{% endfor %}"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<|turn|>", "<|end|>", "<extra_0>")

NEEDS_TRL = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "transformers", "trl"))),
    reason="trl is not installed (extra train)",
)
"""For whole files: it imports nothing, which would cost every worker that collects them seconds."""


def require_torch() -> None:
    """Skip the test with the reason where torch or transformers is not installed."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra hf)")


def make_tokenizer(chat: str | None = CHAT, **settings: Any) -> Any:
    """A tokenizer of single bytes with a few control marks, which opens a text that no chat
    template wrote.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys([*SPECIAL, *alphabet]))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    marks = [(name, vocabulary[name]) for name in ("<s>", "</s>")]
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B:1 </s>:1", special_tokens=marks
    )
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        additional_special_tokens=["<|turn|>", "<|end|>", "<extra_0>"],
        **{**names, **settings},
    )
    made.chat_template = chat
    return made


def config_for(tokenizer: Any, kind: str = "llama", **settings: Any) -> Any:
    from transformers import BertConfig, GPT2Config, LlamaConfig

    size = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "num_labels": 1,
        **settings,
    }
    if kind == "llama":
        return LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            max_position_embeddings=2048, **size,
        )  # fmt: skip
    if kind == "gpt2":
        return GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=1024, **size)
    return BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=256, **size
    )  # fmt: skip


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return folder


def make_checkpoint(
    folder: Path, model: str = "LlamaForSequenceClassification", seed: int = 0, chat: str | None = CHAT,
    tokenizer: dict[str, Any] | None = None, **settings: Any,
) -> Path:  # fmt: skip
    """A checkpoint of a class of transformers with random weights, scores spread well apart."""
    import torch
    import transformers

    torch.manual_seed(seed)
    made = make_tokenizer(chat, **(tokenizer or {}))
    kind = next(kind for kind in ("llama", "gpt2", "bert") if model.lower().startswith(kind))
    network = getattr(transformers, model)(config_for(made, kind, **settings))
    for name, weight in network.named_parameters():
        if name.startswith(("score", "classifier")):
            torch.nn.init.normal_(weight, std=0.5)
    return save(folder, network, made)


def make_classifier(folder: Path, **settings: Any) -> Path:
    return make_checkpoint(folder, **settings)
