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
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.graders.base import FunctionGrader, GraderResult, GraderScore, usage_sum
from rm_gallery.core.graders.bridge import RewardGrader
from rm_gallery.core.graders.common import ClaimGrader
from rm_gallery.core.graders.llm import LLMGrader, RubricGrader, last_what_differs, shown
from rm_gallery.core.graders.run import agraded
from rm_gallery.core.model.message import TEXT_PARTS, ChatResponse, part_text, picture_of
from rm_gallery.core.reward.abstract import PICTURES, Touches
from rm_gallery.core.reward.channel import Channel
from rm_gallery.core.reward.judge import BaseListWiseRubricReward, BasePairWiseRubricReward
from rm_gallery.core.reward.template import render
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored

PARTS = Path(__file__).parent / "parts"
IMAGE_RUBRICS = Path(__file__).parent / "rubrics" / "multimodal"
SEARCHED = 500
"""Characters of a response that are searched for at once: search engines take no more."""


# -- preferences -----------------------------------------------------------------------------------


class _PreferenceGrader(RewardGrader):
    """A comparison by rubrics as a grader."""

    def __init__(self, reward: Any = None, *, model: Any = None, **settings: Any) -> None:
        """Take the judge as `model` or `llm`, and rubrics, desc and language as the rewards do."""
        if reward is None:
            own = {
                key: value for key, value in settings.items() if key not in type(self).model_fields
            }
            strategy_settings = {
                key: value for key, value in settings.items() if key in type(self).model_fields
            }
            judge = own.pop("llm", model)
            made: Any = type(self).kind
            reward = made(
                llm=judge, name=strategy_settings.get("name") or self.registered_name(), **own
            )
            settings = strategy_settings
        super().__init__(reward, **settings)


class PairwisePreferenceGrader(_PreferenceGrader):
    """Which of several responses is better, every pair compared in both orders; a GraderRank,
    places by pairs won.

    Fields: `responses`, `query`, `context`. Metadata: `scores`, the share of pairs won.
    """

    kind: ClassVar[Any] = BasePairWiseRubricReward


class ListwisePreferenceGrader(_PreferenceGrader):
    """Which of several responses, shown at once in a seeded order, is best; a GraderRank, all
    others in second place.

    Fields: `responses`, `query`, `context`.
    """

    kind: ClassVar[Any] = BaseListWiseRubricReward


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

    needs: ClassVar[frozenset[str]] = frozenset({"llm", "logprobs"})
    unheard: ClassVar[frozenset[str]] = frozenset({"prompt", "channel", "own_form"})
    channel: Channel = "text"
    name: str = "g_eval"
    desc: str = "Judge how good the response is."
    """The question."""
    steps: list[str] = Field(default_factory=list)
    """What the judge does one after the other before it scores; the paper has a model write them
    once for a question.
    """
    fields: dict[str, bool] = Field(default_factory=lambda: {"query": False, "response": True})
    """The fields it takes, and whether each is required."""
    top_logprobs: int = Field(default=20, ge=1, le=20)

    @property
    def inputs(self) -> dict[str, bool]:
        """`fields`."""
        return dict(self.fields)

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The question and rubrics, then the fenced fields."""
        return render(
            "grader",
            self.language,
            texts={name: shown(fields.get(name)) for name in last_what_differs(self.fields)},
            always=[name for name, required in self.fields.items() if required],
            desc=self.desc,
            scenario="",
            rubrics=list(self.rubrics),
            examples=[],
            steps=list(self.steps),
            scale=_anchors(*self.score_range, self.language),
            fields=[f"`{name}`" for name in self.fields],
            output_form=form,
        )

    async def _grade(self, /, **fields: Any) -> Any:
        return await self._ask(fields, self._read, logprobs=True, top_logprobs=self.top_logprobs)

    def _read(self, reply: ChatResponse) -> GraderScore:
        verdict = super()._read(reply)
        low, high = self.score_range
        assert low is not None and high is not None
        shares = level_shares(reply.logprobs, verdict.score, low, high)
        if shares is None:
            raise Unscored(
                f"{self.name}: the endpoint gave no probabilities for its score; use an endpoint "
                f"with logprobs.",
                reason="no_logprobs",
                cause="judge",
            )
        total = math.fsum(shares.values())
        expected = math.fsum(level * share for level, share in shares.items()) / total
        metadata = {
            "said": verdict.score,
            "shares": {f"{k:g}": v / total for k, v in sorted(shares.items())},
        }
        return verdict.model_copy(
            update={"score": min(high, max(low, expected)), "metadata": metadata}
        )


_MEANINGS = {
    "en": ("there is nothing of weight to mend", "good, with slight faults", "good in the main, with clear faults",
           "good only in a part", "hardly good in anything"),
    "zh": ("没有值得修改之处", "好，略有瑕疵", "大体上好，但有明显的缺陷", "只有一部分好", "几乎没有好的地方"),
}  # fmt: skip


def _anchors(low: Any, high: Any, language: str) -> list[str]:
    """What the levels mean, where five or more of them are evenly spaced; else the two ends."""
    even = (high - low) % 4 == 0
    places = range(5) if even else (0, 4)
    return [
        f"{high - (high - low) * place / 4:g}: {_MEANINGS[language][place]}" for place in places
    ]


def level_shares(
    logprobs: Any, stated: float, low: float, high: float
) -> dict[float, float] | None:
    """The probabilities of the levels at the place of the score: the last tag or key of that name
    that the number said follows.

    None without one: the same number elsewhere, in a reason or behind the verdict, tells nothing
    about the score.
    """
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    content = content if isinstance(content, list) else []
    entries = [
        entry
        for entry in content
        if isinstance(entry, Mapping) and isinstance(entry.get("token"), str)
    ]
    starts = list(accumulate((len(entry["token"]) for entry in entries), initial=0))
    places = [
        match.end() - 1 for match in _SCORE.finditer("".join(entry["token"] for entry in entries))
    ]
    for place in reversed(places):
        entry = entries[bisect_right(starts, place) - 1]
        if _level(entry["token"], low, high) != stated:
            continue
        shares: dict[float, float] = {}
        options = entry.get("top_logprobs") or [entry]
        for option in options if isinstance(options, list) else ():
            level = _level(option.get("token"), low, high) if isinstance(option, Mapping) else None
            value = option.get("logprob") if isinstance(option, Mapping) else None
            if (
                level is not None
                and isinstance(value, (int, float))
                and value is not True
                and -1e4 < value <= 0
            ):
                shares[level] = shares.get(level, 0.0) + math.exp(value)
        # beyond 1 they are no probabilities
        return shares if 0 < math.fsum(shares.values()) < 1.01 else None
    return None


_SCORE = re.compile(r"(?:<score[^<>]{0,40}>|[\"']score[\"']\s*:)[\s\"'*_`]{0,20}\d", re.I)


def _level(token: Any, low: float, high: float) -> float | None:
    text = token.strip(" \n\t<>\"'*_`:") if isinstance(token, str) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 3:
        return None
    return float(text) if low <= float(text) <= high else None


# -- searches --------------------------------------------------------------------------------------


class SearchCorrectnessGrader(ClaimGrader):
    """Whether a response is true by what a search finds: 1 (false) to 5 (confirmed).

    Fields: `query`, `response`. `search` is your function, plain or async, of a text that returns
    texts (or anything that can be written as JSON): nothing is searched for otherwise. It is asked
    for the query and for the response, a long one piece by piece.
    """

    rubric: ClassVar[str] = "search_correctness"
    folder: ClassVar[Path] = PARTS
    search: Callable[[str], Any] | None = None
    max_searches: int = Field(default=10, ge=1)
    """For how many pieces of the response, of up to 500 characters each, is searched at most; what
    follows them is not.
    """

    @property
    def inputs(self) -> dict[str, bool]:
        """`query` and `response`."""
        return {"query": True, "response": True}

    def check(self) -> None:
        """Raise ConfigError without a search."""
        if self.search is None:
            raise ConfigError(
                f"{self.name} has nothing to search with: pass search=FUNCTION of a text that "
                f"returns texts."
            )
        super().check()

    async def _grade(self, query: str, response: str) -> GraderScore:
        texts = [query, *islice(pieces_of(response, SEARCHED), self.max_searches)]
        pages = await asyncio.gather(*map(self._pages_of, texts))
        if not any(pages):
            raise Unscored(f"{self.name}: the search found nothing.", reason="no_results")
        return await self._one(
            {"query": query, "response": response, "search_results": list(pages)}
        )

    async def _pages_of(self, text: str) -> Any:
        search = self.search
        if search is None:
            raise ConfigError(
                f"{self.name} has nothing to search with: pass search=FUNCTION of a text that "
                f"returns texts."
            )
        if inspect.iscoroutinefunction(search):
            return await search(text)
        # what blocks is run on a thread of the engine, as a plain grader is
        searcher = FunctionGrader(
            lambda text: GraderScore(score=0.0, metadata={"found": search(text)}), name="search"
        )
        return (await agraded(searcher, {"text": text})).metadata["found"]


_ENDS = re.compile(r"[.!?](?=\s)|[。！？\n]")


def pieces_of(text: str, longest: int) -> Iterator[str]:
    """The text in pieces of at most so many characters, cut where a sentence ends, or a word, if
    that is in a piece's second half.
    """
    rest = text.strip()
    while len(rest) > longest:
        start = rest[:longest]
        ends = (
            max((match.end() for match in _ENDS.finditer(start)), default=0),
            start.rfind(" ") + 1,
        )
        cut = next((end for end in ends if end > longest // 2), longest)
        yield start[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest


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
    if not isinstance(value, Mapping):
        return None
    if (
        value.get("type") in ("image_url", "input_image", "image")
        and (url := picture_of(value)) is not None
    ):
        return url
    if value.get("type") in ("image_url", "input_image"):
        given = value.get("image_url")
        return _url(given.get("url") if isinstance(given, Mapping) else given)
    if value.get("type") in TEXT_PARTS[:-1]:
        return None
    if value.get("base64"):
        kind = (
            str(value.get("format") or "png").lower().removeprefix("image/").replace("jpg", "jpeg")
        )
        if not kind.isascii() or not kind.isalnum():
            raise DataError(f"an image's format is {kind[:60]!r}; give png, jpeg, webp or gif.")
        return f"data:image/{kind};base64,{value['base64']}"
    if value.get("path"):
        return _of_file(Path(str(value["path"])))
    return _url(value.get("url"))


def _url(url: Any) -> str | None:
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

    needs: ClassVar[frozenset[str]] = frozenset({"llm", "vision"})
    touches: ClassVar[Touches] = {"files": (PICTURES,), "network": (PICTURES,)}
    folder: ClassVar[Path] = IMAGE_RUBRICS

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

    rubric: ClassVar[str] = "image_quality"


class _InText(_ImageGrader):
    """Each image of a response, judged with the text around it."""

    max_context_size: int = Field(default=500, ge=0)
    """Characters before and after an image that the judge is shown."""

    @property
    def inputs(self) -> dict[str, bool]:
        """`response`, a list of texts and images in order; `query` where the rubric asks for it."""
        return {"response": True, **({"query": False} if "query" in self.texts().inputs else {})}

    async def _grade(self, response: Any, query: str = "") -> GraderScore:
        parts = (
            response
            if isinstance(response, Sequence) and not isinstance(response, str)
            else [response]
        )
        parts = [
            part_text(p) or "" if isinstance(p, Mapping) and p.get("type") in TEXT_PARTS[:-1] else p
            for p in parts
        ]
        urls = [image_url(part) for part in parts]
        places = [place for place, url in enumerate(urls) if url is not None]
        if not places:
            raise Unscored(
                f"{self.name}: the response holds no image.", reason="no_image", cause="answer"
            )
        results: list[GraderScore] = []
        for place in places:
            before = "\n".join(
                str(p) for p, url in zip(parts[:place], urls, strict=False) if url is None
            )
            after = "\n".join(
                str(p)
                for p, url in zip(parts[place + 1 :], urls[place + 1 :], strict=True)
                if url is None
            )
            size = self.max_context_size
            shown = {"text_before": before[len(before) - size :] if size < len(before) else before}
            fields = {**shown, "text_after": after[:size], "image": parts[place], "query": query}
            results.append(await self._one(fields))
        mean = math.fsum(result.score for result in results) / len(results)
        metadata = {
            "images": [{"score": result.score, "reason": result.reason} for result in results]
        }
        return GraderScore(
            score=mean,
            reason=results[0].reason,
            metadata=metadata,
            usage=usage_sum(results),
            **self.about(),
        )


class ImageCoherenceGrader(_InText):
    """Whether the images of a response fit the text around them: 1 to 5, the mean over images.

    Field: `response`, a list of texts and images in order.
    """

    rubric: ClassVar[str] = "image_coherence"


class ImageHelpfulnessGrader(_InText):
    """Whether the images of a response help to understand it: 1 to 5, the mean over images.

    Fields: `response`, a list of texts and images in order; `query`.
    """

    rubric: ClassVar[str] = "image_helpfulness"


class TextToImageGrader(_ImageGrader):
    """A generated image: the geometric mean of how far it shows what was asked for and how well it
    is made, 1 to 5.

    Fields: `query`; `response`, the image, or a list whose first one counts. Two calls.
    """

    rubric: ClassVar[str] = "text_to_image"

    @property
    def inputs(self) -> dict[str, bool]:
        """`query` and `response`."""
        return {"query": True, "response": True}

    async def _grade(self, query: str, response: Any) -> GraderScore:
        image = (
            next((part for part in response if image_url(part)), None)
            if isinstance(response, (list, tuple))
            else response
        )
        followed = await self._one({"query": query, "image": image})
        asked = {
            name: getattr(self, name)
            for name in ("model", "language", "repair_attempts", "channel")
        }
        quality = ImageQualityGrader(**asked)
        made: GraderResult = await agraded(quality, {"image": image})
        assert isinstance(made, GraderScore)
        parts = {"prompt_following": followed.score, "quality": made.score}
        reason = " ".join(filter(None, [followed.reason, made.reason]))
        score = math.sqrt(followed.score * made.score)
        return GraderScore(
            score=score,
            reason=reason,
            metadata=parts,
            usage=usage_sum([followed, made]),
            **self.about(),
        )
