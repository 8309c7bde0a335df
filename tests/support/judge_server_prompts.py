"""What a judge reads out of a prompt: the candidate answers, the reply shape that is asked for, and
the oracle's view.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

FIELDS = ("best", "score", "preference", "rankings", "rank")
Oracle = Mapping[str, Mapping[str, Any]]

# An opening tag with a token: <answer_1 k3v9>; the fence must stand at the start of a line, so that
# prose which mentions the tags does not count as a block.
_OPENING = re.compile(r"<([A-Za-z]\w*) ([^\s<>]+)>")


class Block(NamedTuple):
    """One fenced block `<name FENCE>…</name FENCE>` and where it stands in the prompt."""

    name: str
    start: int
    end: int
    text: str


def prompt_text(messages: Iterable[Mapping[str, Any]]) -> str:
    """Everything a judge is told: the texts of all messages except its own earlier replies."""
    told = [
        message.get("content") or "" for message in messages if message.get("role") != "assistant"
    ]
    parts = [text if isinstance(text, list) else [{"text": text}] for text in told]
    return "\n".join("\n".join(str(part.get("text", "")) for part in each) for each in parts)


def fenced_blocks(prompt: str) -> list[Block]:
    """Blocks of the prompt's own fence, in order; text inside a block is never searched for further
    blocks.
    """
    blocks: list[Block] = []
    fence, position = "", 0
    while opening := _OPENING.search(prompt, position):
        name, token = opening.groups()
        start, position = opening.span()
        closing = f"</{name} {token}>"
        end = prompt.find(closing, position)
        if (fence and token != fence) or (start > 0 and prompt[start - 1] != "\n") or end < 0:
            continue
        fence = token
        blocks.append(Block(name, start, end + len(closing), prompt[position:end]))
        position = end + len(closing)
    return blocks


def extract_candidates(prompt: str, pattern: str | None = None) -> list[str]:
    """Candidate answers in the order of the prompt, stripped.

    Without a pattern the prompt's fenced blocks `<answer_k FENCE>` (or one `<answer FENCE>`) are
    read. A pattern is a regex with a group `text`, matched with DOTALL and MULTILINE.
    """
    if pattern is not None:
        return [
            found["text"].strip()
            for found in re.finditer(pattern, prompt, re.DOTALL | re.MULTILINE)
        ]
    return [
        block.text.strip()
        for block in fenced_blocks(prompt)
        if re.match(r"answer(_|$)", block.name)
    ]


class ReplyShape(NamedTuple):
    """Fields the prompt asks for and whether as tags or as one JSON object; `schema` is a JSON
    schema's properties.
    """

    fields: tuple[str, ...]
    as_json: bool = False
    schema: Mapping[str, Any] | None = None


def reply_shape(body: Mapping[str, Any], asked: str) -> ReplyShape:
    """Shape asked for by a JSON schema, else by tags in the instructions, else by quoted JSON keys,
    else best and score.
    """
    wanted = body.get("response_format") or {}
    if body.get("tools"):
        called = body["tools"][0]["function"]["parameters"]["properties"]
        return ReplyShape(tuple(name for name in FIELDS if name in called), True, called)
    if wanted.get("type") == "json_schema":
        properties = wanted["json_schema"]["schema"]["properties"]
        return ReplyShape(tuple(name for name in FIELDS if name in properties), True, properties)
    tags, keys = (
        tuple(name for name in FIELDS if sign % name in asked) for sign in ("<%s>", '"%s"')
    )
    as_json = not tags and bool(keys or wanted.get("type") == "json_object")
    return ReplyShape(tags or keys or ("best", "score"), as_json)


class Reading(NamedTuple):
    prompt: str
    asked: str
    candidates: tuple[str, ...]
    shape: ReplyShape
    query: str = ""


def read_prompt(body: Mapping[str, Any], pattern: str | None = None) -> Reading:
    prompt = prompt_text(body["messages"])
    blocks = fenced_blocks(prompt)
    # without its blocks, so that a tag inside an answer asks for nothing
    ends = zip(
        [0, *(block.end for block in blocks)],
        [*(block.start for block in blocks), len(prompt)],
        strict=True,
    )
    asked = "".join(prompt[start:end] for start, end in ends)
    query = next((block.text for block in blocks if block.name == "query"), "")
    return Reading(
        prompt, asked, tuple(extract_candidates(prompt, pattern)), reply_shape(body, asked), query
    )


def oracle_key(text: str, query: str | None = None) -> str:
    """Key of a response text in an oracle: sha256 hex of the stripped text in UTF-8, within a query
    where one is given.
    """
    whole = text.strip() if query is None else f"{query.strip()}\x1f{text.strip()}"
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def row_query(query: str, candidates: Iterable[str]) -> str:
    """A query together with all its candidates in any order: two rows may ask the same and disagree
    about an answer.
    """
    return "\x1e".join([query.strip(), *sorted(text.strip() for text in candidates)])


def make_query_oracle(
    rows: Iterable[tuple[str, Sequence[str], Sequence[bool]]],
) -> dict[str, dict[str, Any]]:
    oracle: dict[str, dict[str, Any]] = {}
    for query, texts, goods in rows:
        whole = row_query(query, texts)
        for text, good in zip(texts, goods, strict=True):
            oracle[oracle_key(text, query)] = oracle[oracle_key(text, whole)] = {"good": bool(good)}
    return oracle


def oracle_entry(oracle: Oracle, reading: Reading, text: str) -> Mapping[str, Any] | None:
    """What the oracle says of a candidate: by row, else by query, else by text alone."""
    whole = row_query(reading.query, reading.candidates)
    keys = (oracle_key(text, whole), oracle_key(text, reading.query), oracle_key(text))
    return next((oracle[key] for key in keys if key in oracle), None)


def make_oracle(
    texts: Iterable[tuple[str, bool] | tuple[str, bool, float]],
) -> dict[str, dict[str, Any]]:
    """Oracle from (text, good) or (text, good, score) rows."""
    return {
        oracle_key(text): {"good": good, **({"score": score[0]} if score else {})}
        for text, good, *score in texts
    }
