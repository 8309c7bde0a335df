"""Principles for judging, found from samples with known preferences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field, SerializeAsAny

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.batch import Run
from rm_gallery.core.engine.engine import Plan
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.asking import usable_text
from rm_gallery.core.reward.template import BasePromptTemplate, Prompt, Texts, render
from rm_gallery.core.reward.view import conversation_text
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import TwoValues, object_at
from rm_gallery.core.text.canonical import split_reasoning
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.core.utils.errors import ConfigError, ParseError
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import Configured
from rm_gallery.core.utils.prompt import seeded_order
from rm_gallery.core.utils.shown import excerpt

Principles = dict[str, str]
"""Short names with one sentence each, most important first."""
_LINE = re.compile(r"^(?:[-*•]|\d+[.)、])?\s*(?P<name>[^:：<>{}]{2,120})[:：]\s*(?P<text>.{4,})$")


class PrincipleTemplate(BasePromptTemplate):
    """A reply that holds principles: short names with one sentence each."""

    principles: Principles = Field(
        default=...,
        description='A JSON object {"short name": "one sentence that says what to look for", …}',
    )

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls, prompt: str, texts: Texts, enable_thinking: bool = False, **instructions: Any
    ) -> Prompt:
        """System and user message of a prompt that asks for principles."""
        form = cls.schema(enable_thinking=enable_thinking)
        return render(prompt, "en", texts, output_form=form, **instructions)

    @classmethod
    def parse(cls, text: str) -> Any:
        """Principles from the tag, from any JSON object of texts, or from lines "name: sentence".

        Raises:
            ParseError: none of these is there.
        """
        stated = cls._parse(text)
        inside = stated.get("principles", split_reasoning(text).final)
        match = (
            _texts(inside)
            if isinstance(inside, dict)
            else _from_json(inside) or _from_lines(inside)
        )
        if not match:
            raise ParseError("The reply holds no principles.", reply_excerpt=excerpt(text))
        return cls(principles=match, reason=stated.get("reason"))


def _from_json(text: str) -> Principles:
    start = text.find("{")
    with suppress(TwoValues):
        if start >= 0 and (whole := object_at(text, start)):
            return _texts(whole[0].get("principles", whole[0]))
    return {}


def _texts(texts: Any) -> Principles:
    if not isinstance(texts, dict):
        return {}
    return {
        str(name).strip(): str(value).strip()
        for name, value in texts.items()
        if str(name).strip() and value
    }


def _from_lines(text: str) -> Principles:
    matches = (_LINE.match(line.strip().replace("**", "")) for line in text.splitlines())
    return {match["name"].strip(): match["text"].strip() for match in matches if match}


class AutoPrincipleGenerator(Configured):
    """Asks a model, sample by sample, why the chosen answer was preferred, and merges the reasons
    into a few principles.

    The candidates are shown in a seeded order. Samples without a chosen and a rejected answer are
    left out; a sample whose call fails is left out too, and counted in the log.
    """

    llm: SerializeAsAny[BaseLLM]
    scenario: str
    """What kind of answers are to be judged, in a few words."""
    generate_number: int = Field(default=10, ge=1)
    """Most principles proposed per sample."""
    cluster_number: int = Field(default=1, ge=1)
    """Most principles in the result."""
    max_workers: int = Field(default=MAX_WORKERS, ge=1)
    deadline: float | None = Field(default=600.0, gt=0)
    seed: int = 0

    def run_batch(
        self, samples: Sequence[DataSample], thread_pool: Any = None, *, executor: Any = None
    ) -> Principles:
        """At most `cluster_number` principles as {name: sentence}, most important first.

        A given thread pool is accepted for compatibility and not used.

        Raises:
            ConfigError: no sample has both a chosen and a rejected answer. ParseError: no reply
                held a principle.
        """
        usable = [
            sample
            for sample in samples
            if {preference_of(o) for o in sample.output} >= {"chosen", "rejected"}
        ]
        if not usable:
            raise ConfigError(
                f"None of the {len(samples)} samples has a chosen and a rejected answer "
                f"(answer.label['preference'])."
            )
        self.llm.check()
        outcomes = self._ask_all(usable, self.propose)
        proposals = [outcome.value for outcome in outcomes if outcome.value is not None]
        if not proposals:
            raise ParseError(
                f"None of {len(usable)} replies held a principle; the first says: "
                f"{outcomes[0].reason}"
            )
        if len(proposals) < len(usable):
            logger.warning(
                "{} of {} samples gave no principles.", len(usable) - len(proposals), len(usable)
            )
        [merged] = self._ask_all([proposals], self.merge)
        if merged.value is not None:
            return merged.value
        # what was paid for is not thrown away: without a merged list, the principles proposed most
        # often stand in
        logger.warning(
            "The proposals could not be merged ({}); the most frequent ones are used.",
            merged.reason,
        )
        frequent = Counter(name for proposal in proposals for name in proposal)
        texts = {name: text for proposal in reversed(proposals) for name, text in proposal.items()}
        return {name: texts[name] for name, _ in frequent.most_common(self.cluster_number)}

    def _ask_all(self, items: Sequence[Any], ask: Callable[[Any], Any]) -> list[Score[Principles]]:
        options = RunOptions(max_workers=self.max_workers, deadline=self.deadline)
        run: Run[Score[Principles]] = Run(
            map(_by_itself, items), ask, options, label="principles", lane="loop"
        )
        return library_loop.drive(run.all())

    async def propose(self, sample: DataSample) -> Principles:
        """Ask why the chosen answer of a sample was preferred."""
        order = seeded_order(len(sample.output), f"{self.seed}\x1f{sample.sample_id}")
        shown = [sample.output[i] for i in order]
        texts: Texts = {
            "query": conversation_text(sample.input),
            "answers": [output.answer.text for output in shown],
        }
        best = [preference_of(output) for output in shown].index("chosen") + 1
        return await self._ask("propose", self.generate_number, texts, best=best)

    async def merge(self, proposals: Sequence[Principles]) -> Principles:
        """Ask for the few principles that all proposals come down to."""
        lines = [f"{name}: {text}" for proposal in proposals for name, text in proposal.items()]
        return await self._ask("merge", self.cluster_number, {"proposals": "\n".join(lines)})

    async def _ask(self, name: str, number: int, texts: Texts, **more: Any) -> Principles:
        prompt = PrincipleTemplate.format(
            name, texts, self.llm.enable_thinking, scenario=self.scenario, number=number, **more
        )
        reply = await self.llm.achat(prompt)
        principles: Principles = PrincipleTemplate.parse(usable_text(reply)).principles
        return dict(list(principles.items())[:number])


def _by_itself(item: Any) -> Plan:
    [score] = yield [item]
    return score
