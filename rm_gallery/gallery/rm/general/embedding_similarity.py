"""How near is the answer to the reference in meaning?"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import SerializeAsAny, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.embeddings import BaseEmbeddings
from rm_gallery.core.model.providers import resolve_embeddings
from rm_gallery.core.reward.example import Example
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import SUMMARY, RuleReward, answer_text, one_score, references_of


@RewardRegistry.register("embedding_similarity")
class EmbeddingSimilarityReward(RuleReward):
    """Cosine of the angle between the embeddings of answer and reference: a·b / (|a||b|).

    Range [-1, 1], higher is better: 1 points the same way, 0 is unrelated. What counts as near depends on the model; many
    never go below 0. With several references the nearest counts; an empty answer is 0 without a call, and a thought in
    <think> tags is left out. Texts are embedded one by one, so that a reference shared by many answers is paid for once.
    Unscored without a reference (`no_reference`) and for a vector without direction (`zero_vector`); a failed call is
    failed. Raises ConfigError without `embeddings`.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"reference", "embeddings"})

    name: str = "embedding_similarity"
    embeddings: SerializeAsAny[BaseEmbeddings] | None = None
    """The embedding model: an OpenaiEmbeddings, a model's name, or a dict of its settings."""

    example = Example(
        SUMMARY,
        params={"embeddings": "fake:"},
        note="`fake:` makes vectors of hashed words, without a network and without meaning; a real one is a model's name.",
    )

    @field_validator("embeddings", mode="before")
    @classmethod
    def _resolve(cls, value: Any) -> Any:
        return resolve_embeddings(value) if isinstance(value, str | dict) else value

    def check(self) -> None:
        """Raise ConfigError without an embedding model, or when it could not be called at all."""
        if self.embeddings is None:
            raise ConfigError(
                f"{self.name} has no embedding model: pass embeddings=OpenaiEmbeddings(model=…), or a model's name."
            )
        self.embeddings.check()

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Embed answer and references and compare."""
        references = references_of(sample, self.name)
        answer = split_reasoning(answer_text(sample)).final.strip()
        if not answer:
            return one_score(self.name, 0.0, "The answer is empty.")
        if self.embeddings is None:
            raise ConfigError(f"{self.name} has no embedding model: pass embeddings=OpenaiEmbeddings(model=…).")
        found = await asyncio.gather(*(self.embeddings.aembed([text]) for text in [answer, *references]))
        (given, *wanted) = [vectors[0] for vectors in found]
        near = [cosine(given, vector) for vector in wanted]
        best = max((value for value in near if value is not None), default=None)
        if best is None:
            raise Unscored(
                f"{self.name}: the model gave a vector of zeros, which has no direction.",
                reason="zero_vector",
                cause="judge",
            )
        return one_score(self.name, best, f"Cosine similarity {best:.3f} with '{self.embeddings.model}'.")

    def describe(self) -> dict[str, Any]:
        """What identifies this reward in a manifest; the embedding model without its secrets."""
        own = self.model_copy(update={"embeddings": None})
        found = super(EmbeddingSimilarityReward, own).describe()
        return {**found, "embeddings": self.embeddings.describe() if self.embeddings is not None else None}


def cosine(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Cosine of the angle between two vectors, in [-1, 1]; None when one is all zeros. Raises ValueError for unequal lengths."""
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    size = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    # rounding may leave the cosine of equal vectors a hair above 1
    return None if not size else max(-1.0, min(1.0, product / size))
