"""Judged graders that are more than one rubric: preferences, expected scores, searches, and images
seen as pictures.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import math
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from rm_gallery.core.graders.base import (
    BaseGrader,
    FunctionGrader,
    usage_sum,
)
from rm_gallery.core.graders.common import ClaimGrader
from rm_gallery.core.graders.llm import LLMGrader, RubricGrader, field_messages
from rm_gallery.core.graders.run import agraded
from rm_gallery.core.model.message import TEXT_PARTS, ChatResponse, part_text, picture_of
from rm_gallery.core.reward.channel import Channel, token_entries, token_shares
from rm_gallery.core.reward.job import PICTURES
from rm_gallery.core.reward.judge import (
    BaseListWiseRubricReward,
    BasePairWiseRubricReward,
    BaseRubricReward,
)
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored
from rm_gallery.gallery.graders import wording
from rm_gallery.gallery.graders.agent import listed

PARTS = Path(__file__).parent / "parts"
IMAGE_RUBRICS = Path(__file__).parent / "rubrics" / "multimodal"


# -- preferences -----------------------------------------------------------------------------------


class _PreferenceGrader(BaseRubricReward):
    """A comparison by rubrics under a grader's name."""

    def __init__(self, *, model: Any = None, **settings: Any) -> None:
        """Take the judge as `model` or `llm`, and rubrics, desc and language as the rewards do."""
        super().__init__(**{"llm": model, **settings})


class PairwisePreferenceGrader(_PreferenceGrader, BasePairWiseRubricReward):
    """Which of several responses is better, every pair compared in both orders; a GraderRank,
    places by pairs won.

    Fields: `responses`, `query`, `context`. Metadata: `scores`, the share of pairs won.
    """

    name: str = "pairwise_preference"


class ListwisePreferenceGrader(_PreferenceGrader, BaseListWiseRubricReward):
    """Which of several responses, shown at once in a seeded order, is best; a GraderRank, all
    others in second place.

    Fields: `responses`, `query`, `context`.
    """

    name: str = "listwise_preference"


# -- expected scores -------------------------------------------------------------------------------


class GEvalGrader(LLMGrader):
    """The expected score over the scale, weighted by the probabilities the judge gives to each
    number.

    Fields: `fields`, by default query and response. The judge writes its reasons and a number; the
    endpoint says how probable the other numbers were at that place (`logprobs`), which gives a
    score between the levels and fewer ties. Range `score_range`, whole levels of one token each, 1
    to 5 by default. Unscored (`no_logprobs`) where the endpoint gives no probabilities. Source:
    G-Eval (arXiv 2303.16634), equation 1.
    """

    needs = frozenset({"llm", "logprobs"})
    unheard = frozenset({"prompt", "channel", "own_form"})
    channel: Channel = "text"
    name: str = "g_eval"
    desc: str = "Judge how good the response is."
    """The question."""
    steps: list[str] = []
    """What the judge does one after the other before it scores; the paper has a model write them
    once for a question.
    """
    fields: dict[str, bool] = {"query": False, "response": True}
    """The fields it takes, and whether each is required."""
    top_logprobs: int = Field(default=20, ge=1, le=20)

    @property
    def inputs(self) -> dict[str, bool]:
        """`fields`."""
        return dict(self.fields)

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The question and rubrics, then the fenced fields."""
        return field_messages(
            "grader",
            self,
            fields,
            self.fields,
            steps=list(self.steps),
            scale=_anchors(*self.score_range, self.language),
            fields=[f"`{name}`" for name in self.fields],
            output_form=form,
        )

    async def _grade(self, /, **fields: Any) -> Any:
        return await self._ask(fields, self._read, logprobs=True, top_logprobs=self.top_logprobs)

    def _read(self, verdict: Any, reply: ChatResponse) -> Score[float]:
        stated = float(verdict.score)
        shares = level_shares(reply.logprobs, stated, *self.score_range)
        if shares is None:
            raise Unscored(
                f"{self.name}: the endpoint gave no probabilities for its score; use an endpoint "
                f"with logprobs.",
                reason="no_logprobs",
                cause="judge",
            )
        expected = math.fsum(level * share for level, share in shares.items())
        # rounding may lead out of the levels
        value = min(max(shares), max(min(shares), expected))
        by_level = {f"{level:g}": share for level, share in shares.items()}
        return Score(value, extra={"said": stated, "shares": by_level})


def _anchors(low: Any, high: Any, language: str) -> list[str]:
    """What the levels mean, where five or more of them are evenly spaced; else the two ends."""
    places = range(0, 5, 1 if (high - low) % 4 == 0 else 4)
    return [
        f"{high - (high - low) * place / 4:g}: {wording()['levels'][language][place]}"
        for place in places
    ]


def level_shares(logprobs: Any, stated: float, low: Any, high: Any) -> dict[float, float] | None:
    """The probabilities of the levels, of 1 together, at the place of the score: the last tag or key
    of that name that the number said follows.

    None without one: the same number elsewhere, in a reason or behind the verdict, tells nothing
    about the score.
    """

    def level(token: Any) -> float | None:
        text = token.strip(" \n\t<>\"'*_`:") if isinstance(token, str) else ""
        read = float(text) if text.isascii() and text.isdigit() and len(text) <= 3 else math.nan
        return read if low <= read <= high else None

    entries = [each for each in token_entries(logprobs) if isinstance(each.get("token"), str)]
    text = "".join(entry["token"] for entry in entries)
    of_character = [entry for entry in entries for _ in entry["token"]]
    for match in reversed(list(_SCORE.finditer(text))):
        entry = of_character[match.end() - 1]
        if level(entry["token"]) == stated:
            shares = token_shares(entry, level)
            total = math.fsum(shares.values())
            if 0 < total < 1.01:  # beyond 1 they are no probabilities
                return {found: share / total for found, share in sorted(shares.items())}
            return None
    return None


_SCORE = re.compile(r"(?:<score[^<>]{0,40}>|[\"']score[\"']\s*:)[\s\"'*_`]{0,20}\d", re.I)


# -- searches --------------------------------------------------------------------------------------


class SearchCorrectnessGrader(ClaimGrader):
    """Whether a response is true by what a search finds: 1 (false) to 5 (confirmed).

    Fields: `query`, `response`. `search` is your function, plain or async, of a text that returns
    texts (or anything that can be written as JSON): nothing is searched for otherwise. It is asked
    for the query and for the response, a long one piece by piece.
    """

    rubric = "search_correctness"
    folder = PARTS
    search: Callable[[str], Any] | None = None
    max_searches: int = Field(default=10, ge=1)
    """For how many pieces of the response, of up to 500 characters each, is searched at most; what
    follows them is not.
    """

    inputs = BaseGrader.inputs

    def check(self) -> None:
        """Raise ConfigError without a search."""
        if self.search is None:
            raise ConfigError(
                f"{self.name} has nothing to search with: pass search=FUNCTION of a text that "
                f"returns texts."
            )
        super().check()

    async def _grade(self, query: str, response: str) -> Score[float]:
        pieces = islice(_PIECE.finditer(response.strip()), self.max_searches)
        texts = [query, *(piece[1].strip() for piece in pieces)]
        pages = await asyncio.gather(*map(self._pages_of, texts))
        if not any(pages):
            raise Unscored(f"{self.name}: the search found nothing.", reason="no_results")
        return await self._one({"query": query, "response": response, "search_results": pages})

    async def _pages_of(self, text: str) -> Any:
        search: Any = self.search
        if inspect.iscoroutinefunction(search):
            return await search(text)
        # what blocks is run on a thread of the engine, as a plain grader is
        searcher = FunctionGrader(
            lambda text: Score(0.0, extra={"found": search(text)}), name="search"
        )
        return (await agraded(searcher, {"text": text})).extra["found"]


_PIECE = re.compile(
    r"\s*(.{1,500}\Z|.{250,498}(?:[.!?](?=\s)|.?[。！？\n])|.{250,499}[ ]|.{1,500})", re.DOTALL
)
"""Up to 500 characters, as search engines take no more: what is left, else a text cut where a
sentence ends, or a word, if that is in its second half.
"""


# -- images ----------------------------------------------------------------------------------------

LARGEST = 20_000_000
"""Bytes of an image file that are sent, at most."""


_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")


def image_url(value: Any) -> str | None:
    """The URL an endpoint is sent for an image, or None for what is no image.

    An image is `{"url": …}` (http, https or data), `{"base64": …, "format": "png"}`, `{"path": …}`,
    a pathlib.Path, or a part of the OpenAI protocol (`{"type": "image_url", …}`). A text is none. A
    file is read here, whatever row names it, and sent if its content is an image's; an http URL is
    fetched by the judge's endpoint, from where that stands. Raises DataError for what cannot be
    sent.
    """
    if isinstance(value, Path):
        return _of_file(value)
    if not isinstance(value, Mapping) or value.get("type") in TEXT_PARTS[:-1]:
        return None
    if (url := picture_of(value)) is not None:
        return url
    if value.get("base64"):
        kind = (
            str(value.get("format") or "png").lower().removeprefix("image/").replace("jpg", "jpeg")
        )
        if not kind.isascii() or not kind.isalnum():
            raise DataError(f"an image's format is {kind[:60]!r}; give png, jpeg, webp or gif.")
        return f"data:image/{kind};base64,{value['base64']}"
    if value.get("path"):
        return _of_file(Path(str(value["path"])))
    part = value.get("type") in ("image_url", "input_image")
    given = value.get("image_url" if part else "url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if url and not str(url).lower().startswith(("http://", "https://", "data:image/")):
        raise DataError(
            f"an image's url is {str(url)[:60]!r}; it is http, https or data:image/…; a file is "
            f"{{'path': …}}."
        )
    return str(url) if url else None


def _of_file(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or ""
    if not kind.startswith("image/"):
        raise DataError(f"{path}: the ending is no image's; give .png, .jpg, .webp or .gif.")
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise DataError(f"{path}: {size:,} bytes; at most {LARGEST:,} are sent.")
        content = path.read_bytes() if path.is_file() else b""
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    # the path may come with the data, and a link of that name may lead to anything
    if not content.startswith(_BEGINNINGS) and content[4:8] != b"ftyp":
        raise DataError(f"{path}: its content is no image's; nothing is sent.")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


class _ImageGrader(RubricGrader):
    """A rubric over one image, the field `image`, which is sent as a picture."""

    needs = frozenset({"llm", "vision"})
    touches = {"files": (PICTURES,), "network": (PICTURES,)}
    folder = IMAGE_RUBRICS

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The rubric, then the texts and the image in one turn."""
        url = image_url(fields.get("image"))
        if url is None:
            raise Unscored(
                f"{self.name} needs an image: a url, base64 data or a path.", reason="no_image"
            )
        system, user = super()._messages({**fields, "image": "(see the picture)"}, form)
        parts = [
            {"type": "text", "text": user["content"]},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        return [system, {**user, "content": parts}]


class ImageQualityGrader(_ImageGrader):
    """How well an image is made: 1 (spoilt) to 5 (flawless). Field: `image`."""

    rubric = "image_quality"


class _InText(_ImageGrader):
    """Each image of a response, judged with the text around it."""

    max_context_size: int = Field(default=500, ge=0)
    """Characters before and after an image that the judge is shown."""

    @property
    def inputs(self) -> dict[str, bool]:
        """`response`, a list of texts and images in order; `query` where the rubric asks for it."""
        return {"response": True} | {name: False for name in self.texts().inputs if name == "query"}

    async def _grade(self, response: Any, query: str = "") -> Score[float]:
        several = isinstance(response, Sequence) and not isinstance(response, str)
        parts = response if several else [response]
        texts = [None if image_url(part) else _text_around(part) for part in parts]
        results = []
        for place, part in enumerate(parts):
            if texts[place] is None:
                before, after = _joined(texts[:place]), _joined(texts[place + 1 :])
                fields = {
                    "text_before": before[max(0, len(before) - self.max_context_size) :],
                    "text_after": after[: self.max_context_size],
                    "image": part,
                    "query": query,
                }
                results.append(await self._one(fields))
        if not results:
            raise Unscored(
                f"{self.name}: the response holds no image.", reason="no_image", cause="answer"
            )
        return Score(
            fmean(each.value or 0.0 for each in results),
            results[0].reason,
            extra={"images": [{"score": each.value, "reason": each.reason} for each in results]},
            usage=usage_sum(results),
        )


def _text_around(part: Any) -> str:
    said = isinstance(part, Mapping) and part.get("type") in TEXT_PARTS[:-1]
    return part_text(part) or "" if said else str(part)


def _joined(texts: Sequence[str | None]) -> str:
    return "\n".join(text for text in texts if text is not None)


class ImageCoherenceGrader(_InText):
    """Whether the images of a response fit the text around them: 1 to 5, the mean over images.

    Field: `response`, a list of texts and images in order.
    """

    rubric = "image_coherence"


class ImageHelpfulnessGrader(_InText):
    """Whether the images of a response help to understand it: 1 to 5, the mean over images.

    Fields: `response`, a list of texts and images in order; `query`.
    """

    rubric = "image_helpfulness"


class TextToImageGrader(_ImageGrader):
    """A generated image: the geometric mean of how far it shows what was asked for and how well it
    is made, 1 to 5.

    Fields: `query`; `response`, the image, or a list whose first one counts. Two calls.
    """

    rubric = "text_to_image"

    inputs = BaseGrader.inputs

    async def _grade(self, query: str, response: Any) -> Score[float]:
        image = next((part for part in listed(response) if image_url(part)), None)
        followed = await self._one({"query": query, "image": image})
        asked = ("model", "language", "repair_attempts", "channel")
        quality = ImageQualityGrader(**{name: getattr(self, name) for name in asked})
        made = await quality._one({"image": image})
        return Score(
            math.sqrt((followed.value or 0.0) * (made.value or 0.0)),
            " ".join(filter(None, [followed.reason, made.reason])),
            extra={"prompt_following": followed.value, "quality": made.value},
            usage=usage_sum([followed, made]),
        )
