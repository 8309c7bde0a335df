"""PPE (Preference Proxy Evaluations): best-of-K on verifiable questions, and votes of people in an
arena.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    output,
    required,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.ranking import expected_best
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, cell, given, question
from rm_gallery.gallery.benchmarks.figures import Extra, Figure, Report
from rm_gallery.gallery.benchmarks.judgements import About, Judged, Row, known_of
from rm_gallery.gallery.benchmarks.preferences import Votes
from rm_gallery.gallery.benchmarks.rules import (
    Gathered,
    RuleScorer,
    Tally,
    absent,
    best_of_n_credit,
    headline,
    mean_of,
    mean_of_parts,
    mean_over_clusters,
)

DOMAINS = ("gpqa", "ifeval", "math", "mbpp_plus", "mmlu_pro")
BEST_OF_K, CONFLICT_PAIRS = "best_of_k", "conflict_pairs"
CURVE = (1, 2, 4, 8, 16, 32)
_OWN_COLUMNS = {
    "gpqa": {"correct_choice_index"},
    "math": {"problem", "level"},
    "mmlu_pro": {"answer_index", "options"},
    "ifeval": {"instruction_id_list"},
}
_TAGS = ("hard_prompt", "easy_prompt", "if_prompt", "math_prompt", "is_code")
_RESPONSE = re.compile(r"response_(\d+)")


class PPECorrectness(Benchmark):
    """Picks a reward makes among K sampled answers of which it is known which are right.

    In mode best_of_k (the default for rewards that score answers) a question earns the share of
    right answers among its top-scoring ones; what can be reached at most is the share of questions
    with a right answer, `extra["oracle"]`, and `extra["curve"]` holds the expected figure for fewer
    answers. In mode conflict_pairs (the default for rewards that compare) the sampled pairs of a
    right and a wrong answer are strict pairs. Either way the headline is the mean of the five
    domains.
    """

    name = "ppe_correctness"
    aliases = ("ppe",)
    hub = "lmarena-ai/PPE-MMLU-Pro-Best-of-K"
    hub_parts = (
        "lmarena-ai/PPE-MATH-Best-of-K",
        "lmarena-ai/PPE-GPQA-Best-of-K",
        "lmarena-ai/PPE-MBPP-Plus-Best-of-K",
        "lmarena-ai/PPE-IFEval-Best-of-K",
    )
    split = "train"
    version = "paper; best-of-K at the full K, conflicting pairs as sampled in the files"
    own_columns = frozenset(
        {"prompt", "scores", "response_1", "response_2", "sampled_conflict_pairs"}
    )
    modes = {
        BEST_OF_K: "share of right answers among the top-scoring ones of all K",
        CONFLICT_PAIRS: "strict pairs of one right and one wrong answer, as sampled in the files",
    }

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the responses in order, chosen where they are right. Metadata: `subset`
        (domain), `pairs`, `cluster`.
        """
        numbers = sorted(int(match[1]) for name in row if (match := _RESPONSE.fullmatch(name)))
        truths = cell(row, "scores", where)
        if not isinstance(truths, list) or len(truths) != len(numbers):
            expected = f"a list of {len(numbers)} truth values, one for each response"
            raise wrong(where, "scores", expected, truths)
        pairs = _pairs_of_places(row, "sampled_conflict_pairs", where)
        domain, asked_as = _domain(row, where), identity(row, "question_id", where)
        model = row.get("model_name")
        cluster = f"{domain}:{asked_as}" if asked_as else None
        about = {"subset": domain, "cluster": cluster, "model_name": model, "pairs": pairs}
        outputs = [
            output(text(row, f"response_{number}", where), "chosen" if right else "rejected")
            for number, right in zip(numbers, truths, strict=True)
        ]
        name = f"{cluster}:{model}" if cluster and model else cluster or ""
        asked = question(row, "prompt", where, required)
        return self.sample(name, asked, outputs, domain, given(about))

    def check(self, reward: BaseReward) -> None:
        """Best-of-K needs a score for each answer."""
        super().check(reward)
        if self.mode == BEST_OF_K and reward.compares:
            raise ConfigError(
                f"{reward.name} compares answers and best_of_k scores each; take --mode "
                f"{CONFLICT_PAIRS}."
            )

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """All answers for a reward that scores them, the sampled pairs for one that compares."""
        pairs = _pairs(sample)
        if not reward.compares or not pairs:
            return (sample,)
        return (Gathered.part_of(sample, part, len(pairs), pair) for part, pair in enumerate(pairs))

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count questions by domain."""
        return _Picks(self.mode)


def _domain(row: Row, where: RowRef) -> str:
    """The domain, by the columns its file alone has; MBPP-Plus is what is left, unless the file's
    name says otherwise.
    """
    named = re.sub(r"[^a-z]", "", where.source.rsplit("/", 1)[-1].lower())
    by_name = next((domain for domain in DOMAINS if domain.replace("_", "") in named), None)
    return next((d for d, own in _OWN_COLUMNS.items() if own <= row.keys()), by_name or "mbpp_plus")


def _pairs_of_places(row: Row, column: str, where: RowRef) -> list[list[int]]:
    """Pairs of places; none where the column is absent or null."""
    pairs = json_cell(row.get(column))
    try:
        return [[int(place) for place in pair] for pair in pairs or []]
    except (TypeError, ValueError):
        raise wrong(where, column, "a list of pairs of places, counted from 0", pairs) from None


def _pairs(sample: DataSample) -> list[tuple[int, int]]:
    """The sampled pairs of which one answer is right and the other wrong."""
    right = {at: preference_of(answer) == "chosen" for at, answer in enumerate(sample.output)}
    given = (pair for pair in known_of(sample).get("pairs") or [] if len(pair) == 2)
    return [(a, b) for a, b in given if right.keys() >= {a, b} and right[a] != right[b]]


class _Picks:
    """Questions by domain, fed with whole questions or with their pairs."""

    def __init__(self, mode: str | None) -> None:
        self._mode = mode
        self._tallies: defaultdict[str, defaultdict[str, Tally]] = defaultdict(
            lambda: defaultdict(Tally)
        )
        """By what is counted, and by domain; a point of the curve by its number of answers."""
        self._parts = Gathered()
        self._compared = False

    def add(self, judged: Judged) -> float | None:
        """Count one question, or one pair of it; a question counts when its last pair has come."""
        found = self._parts.margins(judged, _pairs(judged.sample))
        conflict = None if found is None else self._conflict(judged, *found)
        if "whole" in judged.metadata:
            self._compared = True
            return conflict
        scores, chosen, domain = judged.complete(), judged.chosen, judged.subset
        best = best_of_n_credit(judged) if chosen else None
        self._tallies[BEST_OF_K][domain].count(judged, best)
        self._tallies["right"][domain].add(mean_of(chosen))
        self._tallies["oracle"][domain].add(float(any(chosen)))
        for k in CURVE:
            if scores is not None and k <= len(scores):
                self._tallies[str(k)][domain].add(expected_best(scores, chosen, k))
        return conflict if self._mode == CONFLICT_PAIRS else best

    def _conflict(
        self, judged: Judged, margins: Sequence[float | None], lost: Judged
    ) -> float | None:
        won = [float(margin > 0) for margin in margins if margin is not None]
        credit = mean_of(won) if len(won) == len(margins) else None
        # a question without both right and wrong answers holds no pair, and none is missing
        cause = lost.cause_or("judge") if margins else None
        tally = self._tallies[CONFLICT_PAIRS][judged.subset]
        tally.add(credit, lost.status, judged.cluster, cause)
        return credit

    def report(self) -> Report:
        pairs_only = self._compared or self._mode == CONFLICT_PAIRS
        counted = CONFLICT_PAIRS if pairs_only else BEST_OF_K
        tallies, rule = self._tallies[counted], f"ppe_{counted}"
        parts: dict[str, Figure] = {
            name: replace(
                counts.figure(rule, {} if pairs_only else self._best_of_k_extra(name)),
                chance=0.5 if pairs_only else self._tallies["right"][name].mean,
            )
            for name, counts in tallies.items()
        }
        extra: Extra = {"domains_absent": absent(DOMAINS, parts)}
        if not pairs_only:
            for name in ("oracle", CONFLICT_PAIRS):
                extra[name] = mean_of(part.extra[name] for part in parts.values())
        return headline(mean_of_parts(rule, parts, mean_over_clusters(tallies), extra), parts)

    def _best_of_k_extra(self, domain: str) -> Extra:
        means = {name: by_domain[domain].mean for name, by_domain in self._tallies.items()}
        known = {name: means.get(name) for name in ("oracle", CONFLICT_PAIRS)}
        curve = {str(k): mean for k in CURVE if (mean := means.get(str(k))) is not None}
        return {**known, "curve": curve}


class PPEHumanPreference(Votes):
    """Strict pairs by the vote, pooled, with English and other languages beside it; ties are left
    out unless asked for.
    """

    name = "ppe_human_preference"
    aliases = ("ppe-human-preference-v1", "ppe_human")
    hub = "lmarena-ai/PPE-Human-Preference-V1"
    split = "test"
    version = "accuracy on votes; the paper's figures of model rankings are not computed"
    own_columns = frozenset({"prompt", "response_1", "response_2", "winner", "model_a", "model_b"})
    read_asked = required
    voted = "winner"
    worded = True
    expected = "'model_a', 'model_b' or 'tie'"
    row_id = "question_id"
    task = "conversation"

    def vote_of(self, label: Any) -> int | None:
        """A model, or a tie of any kind."""
        tie = 0 if label.lower().startswith("tie") else None
        return {"model_a": 1, "model_b": -1}.get(label, tie)

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (English or other languages), `language`, `tags`, models."""
        language = row.get("language")
        english = str(language).lower() == "english"
        return {
            "subset": ("english" if english else "other languages") if language else None,
            "language": language,
            "tags": [name for name in _TAGS if row.get(name)] or None,
            "model_a": row.get("model_a"),
            "model_b": row.get("model_b"),
        }
