"""What a judge reads out of a prompt: the candidate answers, the reply shape that is asked for, and the oracle's view."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FIELDS = ("best", "score", "preference", "rankings", "rank")

# An opening tag with a token: <answer_1 k3v9>; the fence must stand at the start of a line, so that prose which
# mentions the tags does not count as a block.
_OPENING = re.compile(r"<([A-Za-z]\w*) ([^\s<>]+)>")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block `<name FENCE>…</name FENCE>` and where it stands in the prompt."""

    name: str
    start: int
    end: int
    text: str


def message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def prompt_text(messages: Iterable[Mapping[str, Any]]) -> str:
    """Everything a judge is told: all messages except its own earlier replies."""
    return "\n".join(message_text(message) for message in messages if message.get("role") != "assistant")


def fenced_blocks(prompt: str) -> list[Block]:
    """Blocks of the prompt's own fence, in order; text inside a block is never searched for further blocks."""
    blocks: list[Block] = []
    fence = ""
    position = 0
    while True:
        opening = _OPENING.search(prompt, position)
        if opening is None:
            return blocks
        name, token = opening.groups()
        start, position = opening.span()
        if (fence and token != fence) or (start > 0 and prompt[start - 1] != "\n"):
            continue
        closing = f"</{name} {token}>"
        end = prompt.find(closing, position)
        if end < 0:
            continue
        fence = token
        blocks.append(Block(name, start, end + len(closing), prompt[position:end]))
        position = end + len(closing)


def extract_candidates(prompt: str, pattern: str | None = None) -> list[str]:
    """Candidate answers in the order of the prompt, stripped.

    Without a pattern the prompt's fenced blocks `<answer_k FENCE>` (or one `<answer FENCE>`) are read. A pattern is a
    regex with a group `text`, matched with DOTALL and MULTILINE.
    """
    if pattern is not None:
        return [found["text"].strip() for found in re.finditer(pattern, prompt, re.DOTALL | re.MULTILINE)]
    blocks = fenced_blocks(prompt)
    return [block.text.strip() for block in blocks if block.name == "answer" or block.name.startswith("answer_")]


def instructions(prompt: str, blocks: list[Block]) -> str:
    """The prompt without its fenced blocks, so that a tag inside an answer asks for nothing."""
    pieces, position = [], 0
    for block in blocks:
        pieces.append(prompt[position : block.start])
        position = block.end
    pieces.append(prompt[position:])
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """Fields the prompt asks for and whether as tags or as one JSON object; `schema` is a JSON schema's properties."""

    fields: tuple[str, ...]
    as_json: bool = False
    schema: Mapping[str, Any] | None = None


def reply_shape(body: Mapping[str, Any], asked: str) -> ReplyShape:
    """Shape asked for by a JSON schema, else by tags in the instructions, else by quoted JSON keys, else best and score."""
    response_format = body.get("response_format")
    if isinstance(response_format, dict) and response_format.get("type") == "json_schema":
        properties = response_format.get("json_schema", {}).get("schema", {}).get("properties", {})
        return ReplyShape(tuple(name for name in FIELDS if name in properties), True, properties)
    tags = tuple(name for name in FIELDS if f"<{name}>" in asked)
    if tags:
        return ReplyShape(tags)
    keys = tuple(name for name in FIELDS if f'"{name}"' in asked)
    wants_json = isinstance(response_format, dict) and response_format.get("type") == "json_object"
    if keys or wants_json:
        return ReplyShape(keys or ("best", "score"), True)
    return ReplyShape(("best", "score"))


@dataclass(frozen=True, slots=True)
class Reading:
    prompt: str
    asked: str
    candidates: tuple[str, ...]
    shape: ReplyShape
    query: str = ""


def read_prompt(body: Mapping[str, Any], pattern: str | None = None) -> Reading:
    prompt = prompt_text(body["messages"])
    blocks = fenced_blocks(prompt)
    asked = instructions(prompt, blocks)
    query = next((block.text for block in blocks if block.name == "query"), "")
    return Reading(prompt, asked, tuple(extract_candidates(prompt, pattern)), reply_shape(body, asked), query)


def oracle_key(text: str, query: str | None = None) -> str:
    """Key of a response text in an oracle: sha256 hex of the stripped text in UTF-8, within a query where one is given."""
    whole = text.strip() if query is None else f"{query.strip()}\x1f{text.strip()}"
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def row_query(query: str, candidates: Iterable[str]) -> str:
    """A query together with all its candidates in any order: two rows may ask the same and disagree about an answer."""
    return "\x1e".join([query.strip(), *sorted(text.strip() for text in candidates)])


def make_query_oracle(rows: Iterable[tuple[str, Sequence[str], Sequence[bool]]]) -> dict[str, dict[str, Any]]:
    oracle: dict[str, dict[str, Any]] = {}
    for query, texts, goods in rows:
        whole = row_query(query, texts)
        for text, good in zip(texts, goods, strict=True):
            oracle[oracle_key(text, query)] = oracle[oracle_key(text, whole)] = {"good": bool(good)}
    return oracle


def oracle_entry(oracle: Mapping[str, Mapping[str, Any]], reading: Reading, text: str) -> Mapping[str, Any] | None:
    """What the oracle says of a candidate: by row, else by query, else by text alone."""
    whole = row_query(reading.query, reading.candidates)
    keys = (oracle_key(text, whole), oracle_key(text, reading.query), oracle_key(text))
    return next((oracle[key] for key in keys if key in oracle), None)


def make_oracle(texts: Iterable[tuple[str, bool] | tuple[str, bool, float]]) -> dict[str, dict[str, Any]]:
    """Oracle from (text, good) or (text, good, score) rows; also finds the text after line ends were normalised."""
    oracle: dict[str, dict[str, Any]] = {}
    for text, good, *score in texts:
        entry: dict[str, Any] = {"good": bool(good)}
        if score:
            entry["score"] = score[0]
        oracle[oracle_key(text)] = entry
        oracle[oracle_key(text.replace("\r\n", "\n"))] = entry
    return oracle
