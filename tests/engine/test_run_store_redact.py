"""Secrets are masked by the name of their key and by their looks; settings that only sound like them are kept."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.engine.folder.manifest import redact


@pytest.mark.parametrize(
    ("key", "masked"),
    [
        ("api_key", True), ("apiKey", True), ("API-KEY", True), ("X-Api-Key", True), ("openai_api_key", True),
        ("Authorization", True), ("auth", True), ("token", True), ("hf_token", True), ("accessToken", True),
        ("secret", True), ("client_secret", True), ("password", True), ("db password", True), ("credentials", True),
        ("Cookie", True), ("private_key", True), ("Ocp-Apim-Subscription-Key", True),
        ("max_tokens", False), ("tokens", False), ("eos_token", False), ("bos_token", False), ("pad_token", False),
        ("api_key_env", False), ("key", False), ("author", False), ("secretary", False), ("tokenizer", False),
    ],
)  # fmt: skip
def test_keys(key: str, masked: bool) -> None:
    assert redact({key: "value-123"}) == {key: "***" if masked else "value-123"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer abcdef123456", "Bearer ***"),
        ("use sk-proj-abcdefghijklmnop now", "use sk-*** now"),
        ("hf_abcdefghijklmnopqrst", "hf-***"),
        ("postgres://me:hunter2@db/x", "postgres://***@db/x"),
        ("https://h/v1?api_key=abc&x=1", "https://h/v1?api_key=***&x=1"),
        ("https://h/v1", "https://h/v1"),
        ("a plain sk-8 sentence: the bearer of news", "a plain sk-8 sentence: the bearer of news"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert redact({"note": text, "list": [text]}) == {"note": expected, "list": [expected]}


@pytest.mark.parametrize("value", [None, "", 0, 4096, True, 0.5])
def test_values_that_are_no_secret_stay(value: Any) -> None:
    assert redact({"token": value}) == {"token": value}


def test_the_original_is_left_alone() -> None:
    original = {"headers": {"Authorization": "Bearer abcdef123456"}, "models": ({"api_key": "x"},), "tags": {"b", "a"}}
    assert redact(original) == {"headers": {"Authorization": "***"}, "models": [{"api_key": "***"}], "tags": ["a", "b"]}
    assert original["headers"] == {"Authorization": "Bearer abcdef123456"}
