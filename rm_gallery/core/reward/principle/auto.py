"""Principles for judging, found from samples with known preferences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, SerializeAsAny

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.engine.outcome import Outcome
from rm_gallery.core.engine.run import gather
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.llm import usable_text
from rm_gallery.core.reward.principle.template import MergeTemplate, PrincipleTemplate, ProposeTemplate
from rm_gallery.core.reward.rubric import conversation_text
from rm_gallery.core.utils.errors import ConfigError, ParseError, Unscored
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import Configured
from rm_gallery.core.utils.prompt import seeded_order


class AutoPrincipleGenerator(Configured):
    """Asks a model, sample by sample, why the chosen answer was preferred, and merges the reasons into a few principles.

    The candidates are shown in a seeded order. Samples without a chosen and a rejected answer are left out; a sample whose
    call fails is left out too, and counted in the log.
    """

    llm: SerializeAsAny[BaseLLM]
    scenario: str
    """What kind of answers are to be judged, in a few words."""
    generate_number: int = Field(default=10, ge=1)
    """Most principles proposed per sample."""
    cluster_number: int = Field(default=1, ge=1)
    """Most principles in the result."""
    max_workers: int = Field(default=32, ge=1)
    deadline: float | None = Field(default=600.0, gt=0)
    seed: int = 0

    def run_batch(
        self, samples: Sequence[DataSample], thread_pool: Any = None, *, executor: Any = None
    ) -> dict[str, str]:
        """At most `cluster_number` principles as {name: sentence}, most important first.

        A given thread pool is accepted for compatibility and not used.

        Raises:
            ConfigError: no sample has both a chosen and a rejected answer. ParseError: no reply held a principle.
        """
        usable = [sample for sample in samples if {preference_of(o) for o in sample.output} >= {"chosen", "rejected"}]
        if not usable:
            raise ConfigError(
                f"None of the {len(samples)} samples has a chosen and a rejected answer (answer.label['preference'])."
            )
        self.llm.check()
        outcomes = gather(usable, self.propose, max_workers=self.max_workers, deadline=self.deadline)
        proposals = [outcome.value for outcome in outcomes if outcome.value is not None]
        if not proposals:
            raise ParseError(f"None of {len(usable)} replies held a principle; the first says: {outcomes[0].message}")
        if len(proposals) < len(usable):
            logger.warning("{} of {} samples gave no principles.", len(usable) - len(proposals), len(usable))
        merged = gather([proposals], self.merge, max_workers=1, deadline=self.deadline)[0]
        return self._result(merged, proposals)

    def generate(self, sample: DataSample) -> dict[str, str]:
        """The principles proposed for one sample; blocking twin of `propose`."""
        outcome: Outcome[dict[str, str]] = gather([sample], self.propose, max_workers=1, deadline=self.deadline)[0]
        if outcome.value is None:
            raise Unscored(outcome.message, reason=outcome.reason)
        return outcome.value

    async def propose(self, sample: DataSample) -> dict[str, str]:
        """Ask why the chosen answer of a sample was preferred."""
        order = seeded_order(len(sample.output), f"{self.seed}\x1f{sample.sample_id}")
        shown = [sample.output[i] for i in order]
        best = next(k for k, output in enumerate(shown, 1) if preference_of(output) == "chosen")
        prompt = ProposeTemplate.format(
            scenario=self.scenario,
            query=conversation_text(sample.input),
            answers=[output.answer.text for output in shown],
            best=best,
            number=self.generate_number,
            enable_thinking=self.llm.enable_thinking,
        )
        return await self._ask(prompt, ProposeTemplate, self.generate_number)

    async def merge(self, proposals: Sequence[dict[str, str]]) -> dict[str, str]:
        """Ask for the few principles that all proposals come down to."""
        lines = [f"{name}: {text}" for proposal in proposals for name, text in proposal.items()]
        prompt = MergeTemplate.format(
            scenario=self.scenario,
            proposals="\n".join(lines),
            number=self.cluster_number,
            enable_thinking=self.llm.enable_thinking,
        )
        return await self._ask(prompt, MergeTemplate, self.cluster_number)

    async def _ask(self, prompt: Any, template: type[PrincipleTemplate], number: int) -> dict[str, str]:
        reply = await self.llm.achat(prompt)
        principles: dict[str, str] = template.parse(usable_text(reply)).principles
        return dict(list(principles.items())[:number])

    def _result(self, merged: Outcome[dict[str, str]], proposals: list[dict[str, str]]) -> dict[str, str]:
        if merged.value is not None:
            return merged.value
        # what was paid for is not thrown away: without a merged list, the principles proposed most often stand in
        logger.warning("The proposals could not be merged ({}); the most frequent ones are used.", merged.message)
        names = [name for proposal in proposals for name in proposal]
        frequent = sorted(dict.fromkeys(names), key=lambda name: -names.count(name))[: self.cluster_number]
        texts = {name: text for proposal in reversed(proposals) for name, text in proposal.items()}
        return {name: texts[name] for name in frequent}
