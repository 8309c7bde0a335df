"""Auto-J's pairwise test: which of two answers people prefer, or neither, in 58 scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    text,
)
from rm_gallery.gallery.benchmarks.base import beginning
from rm_gallery.gallery.benchmarks.figures import Extra, Figure, Report
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    JudgeGroup,
    Recorded,
    Row,
    Rows,
    Samples,
    Verdict,
    judged_pair,
    peek,
    recorded_rows,
    turned,
)
from rm_gallery.gallery.benchmarks.preferences import TwoAnswers, is_vote
from rm_gallery.gallery.benchmarks.rules import (
    CountingUnreadable,
    Credit,
    RuleScorer,
    SideBySide,
    SubsetTallies,
    both_orders_credit,
    consistency_credit,
    games,
    played_verdict,
)

GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(scenarios.split())
    for group, scenarios in {
        "Summarization": "post_summarization text_summarization note_summarization",
        "Exam Questions": "math_reasoning solving_exam_question_with_math solving_exam_question_without_math",
        "Code": (
            "code_generation code_simplification code_correction_rewriting "
            "code_to_code_translation explaining_code"
        ),
        "Rewriting": (
            "instructional_rewriting language_polishing paraphrasing text_correction "
            "text_simplification"
        ),
        "Creative Writing": (
            "counterfactual creative_writing writing_presentation_script writing_personal_essay "
            "writing_blog_post writing_song_lyrics writing_social_media_post "
            "writing_marketing_materials writing_advertisement"
        ),
        "Functional Writing": (
            "functional_writing writing_biography writing_cooking_recipe writing_email "
            "writing_job_application writing_legal_document writing_news_article "
            "writing_product_description writing_scientific_paper writing_technical_document"
        ),
        "General Communication": (
            "analyzing_general asking_how_to_question brainstorming chitchat explaining_general "
            "open_question planning recommendation roleplay seeking_advice value_judgement "
            "verifying_fact"
        ),
        "NLP Tasks": (
            "classification_identification data_analysis information_extraction "
            "keywords_extraction others question_generation ranking reading_comprehension "
            "text_to_text_translation title_generation topic_modeling"
        ),
    }.items()
}
_GROUP_OF = {scenario: group for group, scenarios in GROUPS.items() for scenario in scenarios}


class AutoJ(TwoAnswers):
    """Agreement: the verdict is the label in both orders, and a tie is a class of its own. Pooled,
    with the eight groups.

    `extra["consistency"]` is the share of pairs judged alike in both orders, `extra["single"]` the
    agreement of the first order alone. Scores know no order: equal ones are a tie, without any band
    around it. A judge that sees one order is scored by it.
    """

    name = "auto_j"
    aliases = ("auto-j", "GAIR-NLP/auto-j")
    version = "repository at 2ae17a3"
    own_columns = frozenset({"scenario", "label", "prompt", "response 1", "response 2"})
    answers = ("response 1", "response 2")
    votes = {0: 1, 1: -1, 2: 0}
    expected = "0, 1 or 2"
    tie = "tie"
    row_id = "id"
    task_of = "scenario"
    one_order = ", which is the leaderboard's easier single type."

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (the group of scenarios) and `scenario`."""
        scenario = text(row, "scenario", where)
        return {"subset": _GROUP_OF.get(scenario, "other"), "scenario": scenario}

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count agreement and consistency."""
        return _agreement()

    def replayed(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """Recorded labels of both orders (`pred`, `pred_exchanged_raw`: 0, 1 or 2), or texts
        (`raw_text`, `raw_text_exchanged`).

        Of a text counts what follows its last "final decision is ". A verdict that cannot be read
        agrees with no label.
        """
        self.under(**rule)
        first, rows = peek(rows)
        columns = (
            ("pred", "pred_exchanged_raw")
            if "pred" in first
            else ("raw_text", "raw_text_exchanged")
        )
        for row in recorded_rows(rows, "scenario", "label", *columns):
            label = self.recorded_vote(row)
            first_order, swapped = (self._recorded_verdict(row[column]) for column in columns)
            group = _GROUP_OF.get(str(row["scenario"]), "other")
            yield {}, judged_pair(str(row.number), label, (first_order, turned(swapped)), group)

    def _recorded_verdict(self, recorded: Any) -> Verdict:
        """A recorded label or text as a verdict on the answers as they were shown."""
        if isinstance(recorded, str) and not recorded.isdecimal():
            return final_decision(recorded)
        return self.vote_of(recorded)

    def recorded_scorer(self, seed: int = 0) -> RuleScorer:
        """As for judgements, but a verdict that cannot be read agrees with nothing."""
        return CountingUnreadable(_agreement(unread=0.0))

    def recorded_line(self, group: JudgeGroup, report: Report) -> Extra:
        """The report with the leaderboard's figures at hand, overall and by group."""
        figures = {name: _leaderboard(part) for name, part in report.by_subset.items()}
        return {**super().recorded_line(group, report), **_leaderboard(report), "by_group": figures}


def _leaderboard(figure: Figure) -> Extra:
    return {
        "agreement": figure.score,
        **{name: figure.extra.get(name) for name in ("consistency", "single")},
    }


_DECISIONS: Mapping[str, Verdict] = {"response 1": 1, "response 2": -1, "tie": 0}
_RATING = re.compile(r"Rating: \[\[(\d+(?:\.\d+)?)\]\]")


def final_decision(text: str) -> Verdict:
    """What follows the last "final decision is " begins with response 1, response 2 or tie."""
    _, mark, decision = text.strip().rpartition("final decision is ")
    named = decision.strip().lower() if mark else ""
    return _DECISIONS.get(beginning(named, _DECISIONS))


def auto_j_rating(text: str) -> float | None:
    """The last "Rating: [[x]]"; None without one, where upstream gives 0."""
    ratings = _RATING.findall(text)
    return float(ratings[-1]) if ratings else None


def _agreement(unread: float | None = None) -> SideBySide:
    """Pairs with three classes of labels: right in both orders, alike in both, and right in the
    first; `unread` is what a pair earns whose verdict could not be read.
    """

    def counted(rule: str, credit: Credit) -> SubsetTallies:
        def earned(judged: Judged) -> float | None:
            found = credit(judged)
            return unread if found is None else found

        return SubsetTallies(rule, earned, is_vote)

    rules = {
        "agreement": counted("both_orders", both_orders_credit),
        "consistency": counted("consistency", consistency_credit),
        "single": counted("single_order", _single),
    }
    both = ("agreement", ("consistency", "single"))
    return SideBySide(rules, [both, ("single", ("consistency", "agreement")), both])


def _single(judged: Judged) -> float | None:
    first, _, label = games(judged)
    played = played_verdict(judged) if judged.played_orders == 1 else first
    return None if played is None else float(played == label)
