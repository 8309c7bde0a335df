"""A setting that says what a token is: the name of a built-in tokenizer, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, PlainSerializer

from rm_gallery.core.text.tokens import TokenizerName, tokenizer
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.rule import shown

__all__ = ["TokenizerSetting", "tokens_of"]


def _checked(value: Any) -> Any:
    if value is None or value in get_args(TokenizerName) or (not isinstance(value, str) and _is_hook(value)):
        return value
    names = ", ".join(get_args(TokenizerName))
    raise ConfigError(
        f"found {shown(value)}; give one of {names}, a function text -> tokens, or an object with encode()."
    )


def _is_hook(value: Any) -> bool:
    return callable(value) or callable(getattr(value, "encode", None))


def _described(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    named = getattr(value, "name_or_path", None) or getattr(value, "__qualname__", None)
    return f"{type(value).__module__}.{type(value).__qualname__}({named or ''})"


TokenizerSetting = Annotated[Any, AfterValidator(_checked), PlainSerializer(_described, when_used="json")]
"""A name of `TokenizerName`, a function from a text to its tokens, an object with `encode` (transformers, tokenizers,
tiktoken, sentencepiece), or None."""


def tokens_of(setting: Any, text: str) -> Sequence[Any]:
    """The tokens of a text; special tokens such as a text's start are left out where the tokenizer lets one."""
    if isinstance(setting, str):
        return tokenizer(setting)(text)
    encode = getattr(setting, "encode", None)
    if not callable(encode):
        found: Sequence[Any] = setting(text)
        return found
    # both transformers' and tokenizers' classes have a method of that name
    encoded = encode(text, add_special_tokens=False) if hasattr(setting, "add_special_tokens") else encode(text)
    ids: Sequence[Any] = getattr(encoded, "ids", encoded)
    return ids
