"""HelpSteer 2 and 3: answers that annotators rated, and pairs of which they preferred one."""

from __future__ import annotations

import math
import re

from rm_gallery.core.data.load.converters import (
    RowRef,
    optional_text,
    output,
    required,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, Turns, cell
from rm_gallery.gallery.benchmarks.figures import Extra, Report
from rm_gallery.gallery.benchmarks.judgements import About, Judged, Row, known_of, worst_part
from rm_gallery.gallery.benchmarks.preferences import Shown, Votes
from rm_gallery.gallery.benchmarks.rules import RuleScorer, Tally, headline, merged

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
STRENGTHS = range(-3, 4)
_TURN = re.compile(r"\r?\n?<extra_id_1>(User|Assistant)\r?\n")


class HelpSteer2(Benchmark):
    """The more helpful of the two rated answers to a prompt has to score higher; pooled over the
    prompts.

    Rows hold one answer each. The two rows of a prompt make a pair when both are scored; pairs of
    equal helpfulness say nothing and are unscored, as are answers whose partner is missing.
    `extra["spearman"]` is the rank correlation of scores with helpfulness over all scored answers.
    """

    name = "helpsteer2"
    aliases = ("helpsteer-2", "helpsteer2_ratings")
    hub = "nvidia/HelpSteer2"
    split = "validation"
    version = "pairs of different helpfulness; the data set names no rule of its own"
    own_columns = frozenset({"prompt", "response", *ATTRIBUTES})
    chance = 0.5
    kinds = frozenset({"pointwise", "trajectory"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """The answer, its ratings (0..4) as labels; turns inside the prompt are read as such.
        Metadata: `cluster`, the prompt.
        """
        prompt = text(row, "prompt", where)
        ratings = {name: _on_scale(row, name, where, range(5)) for name in ATTRIBUTES}
        answer = output(text(row, "response", where), None, **ratings)
        about = {"cluster": prompt, "whole_key": prompt}
        return self.sample("", spoken(prompt), [answer], None, about)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count pairs of rows."""
        return _RatedPairs()


class _RatedPairs:
    """Pairs of rated answers, put together by their prompt."""

    def __init__(self) -> None:
        self._waiting: dict[str, Judged] = {}
        self._pairs = Tally()
        self._equal = 0
        self._rated: list[tuple[float, float]] = []

    def add(self, judged: Judged) -> float | None:
        """Count one answer; the pair's credit comes with its second one."""
        ours = _rated(judged)
        if ours is not None:
            self._rated.append(ours)
        prompt = str(judged.metadata.get("cluster") or judged.sample_id)
        other = self._waiting.pop(prompt, None)
        if other is None:
            self._waiting[prompt] = judged
            return None
        lost, theirs, credit = worst_part((other, judged)), _rated(other), None
        cause = lost.cause
        if ours is not None and theirs is not None:
            rise = ours[1] - theirs[1]
            self._equal += rise == 0
            credit = float((ours[0] - theirs[0]) * rise > 0) if rise else None
        elif lost.status == "scored":
            cause = "data"
        # equal ratings say nothing of a reward, so such a pair is unscored and nothing is missing
        self._pairs.add(credit, lost.status, cause=cause)
        return credit

    def report(self) -> Report:
        """Report what was counted so far; an answer without a partner counts as an unscored pair."""
        from scipy.stats import spearmanr

        pairs = merged([self._pairs])
        for unpaired in self._waiting.values():
            pairs.count(unpaired, None)
        extra: Extra = {
            "equal_ratings": self._equal,
            "answers_without_a_partner": len(self._waiting),
        }
        columns = list(zip(*self._rated, strict=True))
        if columns and all(len(set(column)) > 1 for column in columns):
            extra["spearman"] = float(spearmanr(*columns).statistic)
        return headline(pairs.figure("pair_strict", extra), {})


def _rated(judged: Judged) -> tuple[float, float] | None:
    """Score and helpfulness of a rated answer; None without either."""
    scores, rating = judged.complete(), judged.label.get("helpfulness")
    return None if scores is None or rating is None else (scores[0], float(rating))


class _Strengths(Votes):
    """Pairs whose label is a strength from -3 to 3: positive ones prefer the second answer."""

    def vote(self, row: Row, where: RowRef) -> int:
        """The strength, turned round."""
        return -_on_scale(row, self.voted, where, STRENGTHS)


class HelpSteer2Preference(_Strengths):
    """Strict pairs by the annotators' preference, pooled; a strength of 0 is a tie."""

    name = "helpsteer2_preference"
    aliases = ("helpsteer-2-preference",)
    version = "preference strength; the data set names no rule of its own"
    own_columns = frozenset({"prompt", "response_1", "response_2", "preference_strength"})
    voted = "preference_strength"
    modes = {
        **Votes.modes,
        "validation": (
            "as without_ties, of the rows whose split is validation; the file holds the training "
            "rows, too"
        ),
    }

    def shown(self, row: Row, where: RowRef) -> Shown:
        """Turns inside the prompt are read as such."""
        _, first, second = super().shown(row, where)
        return spoken(text(row, "prompt", where)), first, second

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (the split), `cluster` (the prompt), `strength`."""
        return {
            "subset": optional_text(row, "split", where),
            "cluster": text(row, "prompt", where),
            "strength": -vote,
        }

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Ties, and in mode validation the training rows."""
        split = known_of(sample).get("subset")
        if self.mode == "validation" and split not in ("validation", "val"):
            return (
                f"a row of the split {split!r}; mode validation asks only about the validation rows"
            )
        return super().left_out(sample, reward)


class HelpSteer3(_Strengths):
    """Strict pairs by the overall preference, pooled, with the domains (general, stem, code,
    multilingual) beside it.
    """

    name = "helpsteer3"
    aliases = ("helpsteer-3", "helpsteer3_preference")
    hub = "nvidia/HelpSteer3"
    hub_config = "preference"
    split = "validation"
    version = "overall preference; the data set names no rule of its own"
    own_columns = frozenset({"context", "response1", "response2", "overall_preference"})
    voted = "overall_preference"
    asked = "context"
    read_asked = cell
    answers = ("response1", "response2")

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (domain), `language`, `strength`."""
        domain = optional_text(row, "domain", where)
        return {"subset": domain, "language": row.get("language"), "strength": -vote}


def spoken(prompt: str) -> Turns:
    """The turns of a prompt: the first is the user's, and `<extra_id_1>User` or
    `<extra_id_1>Assistant` begin further ones.
    """
    first, *marked = _TURN.split(prompt)
    later = zip(marked[::2], marked[1::2], strict=True)
    return [
        {"role": "user", "content": first},
        *({"role": who.lower(), "content": words} for who, words in later),
    ]


def _on_scale(row: Row, column: str, where: RowRef, scale: range) -> int:
    """A whole number of a scale; a table of texts or of numbers with gaps may hold it as "2" or
    2.0.
    """
    value = required(row, column, where)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number not in scale:
        raise wrong(where, column, f"a whole number from {scale[0]} to {scale[-1]}", value)
    return int(number)
