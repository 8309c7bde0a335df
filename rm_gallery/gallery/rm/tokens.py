"""The setting `tokenizer` of rules that count tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, PlainSerializer

from rm_gallery.core.reward.rule import shown
from rm_gallery.core.text.language import TokenizerName, tokenizer
from rm_gallery.core.utils.errors import ConfigError


def _tokenizer_checked(value: Any) -> Any:
    is_hook = not isinstance(value, str) and (
        callable(value) or callable(getattr(value, "encode", None))
    )
    if value is None or is_hook or value in get_args(TokenizerName):
        return value
    names = ", ".join(get_args(TokenizerName))
    raise ConfigError(
        f"found {shown(value)}; give one of {names}, a function text -> tokens, or an object with "
        f"encode()."
    )


def _tokenizer_described(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    named = getattr(value, "name_or_path", None) or getattr(value, "__qualname__", None)
    return f"{type(value).__module__}.{type(value).__qualname__}({named or ''})"


TokenizerSetting = Annotated[
    Any, AfterValidator(_tokenizer_checked), PlainSerializer(_tokenizer_described, when_used="json")
]
"""A name of `TokenizerName`, a function from a text to its tokens, an object with `encode`
(transformers, tokenizers, tiktoken, sentencepiece), or None."""


def tokens_of(setting: Any, text: str) -> Sequence[Any]:
    """The tokens of a text, without special tokens where the tokenizer can leave them out."""
    if isinstance(setting, str):
        return tokenizer(setting)(text)
    encode = getattr(setting, "encode", None)
    if not callable(encode):
        tokens: Sequence[Any] = setting(text)
        return tokens
    # both transformers' and tokenizers' classes have a method of that name
    encoded = (
        encode(text, add_special_tokens=False)
        if hasattr(setting, "add_special_tokens")
        else encode(text)
    )
    ids: Sequence[Any] = getattr(encoded, "ids", encoded)
    return ids
