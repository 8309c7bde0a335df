"""Graders of images: the judge gets the rubric, the texts and the image itself."""

from __future__ import annotations

import base64
import math
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.graders.base import GraderResult, GraderScore, usage_sum
from rm_gallery.core.graders.llm import RubricGrader
from rm_gallery.core.graders.run import agraded
from rm_gallery.core.model.message import TEXT_PARTS, part_text, picture_of
from rm_gallery.core.utils.errors import DataError, Unscored

RUBRICS = Path(__file__).parent / "rubrics" / "multimodal"
LARGEST = 20_000_000
"""Bytes of an image file that are sent, at most."""


_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")


def image_url(value: Any) -> str | None:
    """The URL an endpoint is sent for an image, or None for what is no image.

    An image is `{"url": …}` (http, https or data), `{"base64": …, "format": "png"}`, `{"path": …}`, a pathlib.Path, or a part of
    the OpenAI protocol (`{"type": "image_url", …}`). A text is none. A file is read here, whatever row names it, and sent if
    its content is an image's; an http URL is fetched by the judge's endpoint, from where that stands. Raises DataError for what
    cannot be sent.
    """
    if isinstance(value, Path):
        return _of_file(value)
    if not isinstance(value, Mapping):
        return None
    if value.get("type") in ("image_url", "input_image", "image") and (url := picture_of(value)) is not None:
        return url
    if value.get("type") in ("image_url", "input_image"):
        given = value.get("image_url")
        return _url(given.get("url") if isinstance(given, Mapping) else given)
    if value.get("type") in TEXT_PARTS[:-1]:
        return None
    if value.get("base64"):
        kind = str(value.get("format") or "png").lower().removeprefix("image/").replace("jpg", "jpeg")
        if not kind.isascii() or not kind.isalnum():
            raise DataError(f"an image's format is {kind[:60]!r}; give png, jpeg, webp or gif.")
        return f"data:image/{kind};base64,{value['base64']}"
    if value.get("path"):
        return _of_file(Path(str(value["path"])))
    return _url(value.get("url"))


def _url(url: Any) -> str | None:
    if url and not str(url).lower().startswith(("http://", "https://", "data:image/")):
        raise DataError(f"an image's url is {str(url)[:60]!r}; it is http, https or data:image/…; a file is {{'path': …}}.")
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
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    # the path may come with the data, and a link of that name may lead to anything
    if not content.startswith(_BEGINNINGS) and content[4:8] != b"ftyp":
        raise DataError(f"{path}: its content is no image's; nothing is sent.")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


class _ImageGrader(RubricGrader):
    """A rubric over one image, the field `image`, which is sent as a picture."""

    needs: ClassVar[frozenset[str]] = frozenset({"llm", "vision"})
    folder: ClassVar[Path] = RUBRICS

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The rubric, then the texts and the image in one turn."""
        url = image_url(fields.get("image"))
        if url is None:
            raise Unscored(f"{self.name} needs an image: a url, base64 data or a path.", reason="no_image")
        system, user = super()._messages({**fields, "image": "(see the picture)"}, form)
        parts = [{"type": "text", "text": user["content"]}, {"type": "image_url", "image_url": {"url": url}}]
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
        return {"response": True, **({"query": False} if "query" in self.texts()["inputs"] else {})}

    async def _grade(self, response: Any, query: str = "") -> GraderScore:
        parts = response if isinstance(response, Sequence) and not isinstance(response, str) else [response]
        parts = [part_text(p) or "" if isinstance(p, Mapping) and p.get("type") in TEXT_PARTS[:-1] else p for p in parts]
        urls = [image_url(part) for part in parts]
        places = [place for place, url in enumerate(urls) if url is not None]
        if not places:
            raise Unscored(f"{self.name}: the response holds no image.", reason="no_image", cause="answer")
        results: list[GraderScore] = []
        for place in places:
            before = "\n".join(str(p) for p, url in zip(parts[:place], urls, strict=False) if url is None)
            after = "\n".join(str(p) for p, url in zip(parts[place + 1 :], urls[place + 1 :], strict=True) if url is None)
            size = self.max_context_size
            shown = {"text_before": before[len(before) - size :] if size < len(before) else before}
            fields = {**shown, "text_after": after[:size], "image": parts[place], "query": query}
            results.append(await self._one(fields))
        mean = math.fsum(result.score for result in results) / len(results)
        metadata = {"images": [{"score": result.score, "reason": result.reason} for result in results]}
        return GraderScore(score=mean, reason=results[0].reason, metadata=metadata, usage=usage_sum(results), **self.about())


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
    """A generated image: the geometric mean of how far it shows what was asked for and how well it is made, 1 to 5.

    Fields: `query`; `response`, the image, or a list whose first one counts. Two calls.
    """

    rubric: ClassVar[str] = "text_to_image"

    @property
    def inputs(self) -> dict[str, bool]:
        """`query` and `response`."""
        return {"query": True, "response": True}

    async def _grade(self, query: str, response: Any) -> GraderScore:
        image = next((part for part in response if image_url(part)), None) if isinstance(response, (list, tuple)) else response
        followed = await self._one({"query": query, "image": image})
        asked = {name: getattr(self, name) for name in ("model", "language", "repair_attempts", "channel")}
        quality = ImageQualityGrader(**asked)
        made: GraderResult = await agraded(quality, {"image": image})
        assert isinstance(made, GraderScore)
        parts = {"prompt_following": followed.score, "quality": made.score}
        reason = " ".join(filter(None, [followed.reason, made.reason]))
        score = math.sqrt(followed.score * made.score)
        return GraderScore(score=score, reason=reason, metadata=parts, usage=usage_sum([followed, made]), **self.about())
