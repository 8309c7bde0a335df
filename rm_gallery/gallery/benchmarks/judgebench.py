"""JudgeBench: pairs with an objectively right answer, played in both orders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rm_gallery.core.data.load.converters import RowRef, text
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.gallery.benchmarks.auto_j import final_decision
from rm_gallery.gallery.benchmarks.base import beginning
from rm_gallery.gallery.benchmarks.figures import Extra, Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    JudgeGroup,
    Recorded,
    RecordedRow,
    Row,
    Rows,
    Samples,
    Verdict,
    is_pair,
    judged_pair,
    peek,
    recorded_rows,
    sees_one_order,
    sign,
    turned,
)
from rm_gallery.gallery.benchmarks.preferences import TwoAnswers
from rm_gallery.gallery.benchmarks.rules import (
    CountingUnreadable,
    Orders,
    RuleScorer,
    SideBySide,
    SubsetTallies,
    Tally,
    games,
    reliability,
    single_game_credit,
    single_game_share,
    two_game_credit,
    two_game_share,
)

CATEGORIES = ("mmlu-pro", "livebench-reasoning", "livebench-math", "livecodebench")
TWO_GAMES, SINGLE_GAME = "two_games", "single_game"
_SCORES = ("score_A", "score_B", "score_A_swapped", "score_B_swapped")


class JudgeBench(TwoAnswers):
    """Two games, sign rule: right verdicts have to outnumber wrong ones. Pooled over all pairs,
    with the categories.

    A judge that sees only one order (a listwise one, or `both_orders=False`) is scored by the
    benchmark's single game, and the figure says so. `extra["single_game"]` holds that figure
    wherever it can be had. Upstream counts a missing verdict as a tie; here the pair is unscored
    and counted, and `extra["with_upstream_defaults"]` is the headline as upstream prints it.
    """

    name = "judgebench"
    aliases = ("judge-bench",)
    hub = "ScalerLab/JudgeBench"
    split = "gpt"
    version = "repository at e2c52c2"
    modes = {
        TWO_GAMES: "both orders are played and right verdicts have to outnumber wrong ones",
        SINGLE_GAME: (
            "only the order of the file counts; a pairwise judge with --param both_orders=false "
            "plays no other"
        ),
    }

    own_columns = frozenset({"pair_id", "question", "response_A", "response_B", "label"})
    asked = "question"
    answers = ("response_A", "response_B")
    votes = {"A>B": 1, "B>A": -1}
    worded = True
    expected = "'A>B' or 'B>A'"
    row_id = "pair_id"
    one_order = ", so this is the single game; a pairwise judge plays both."

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (the category), `category` (the source as given), `original_id`,
        `response_model`.
        """
        source = text(row, "source", where)
        kept = {name: row.get(name) for name in ("original_id", "response_model")}
        return {"subset": _category(source), "category": source, **kept}

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count games."""
        return _Games(self.mode)

    def check(self, reward: BaseReward) -> None:
        """Two games need a judge that plays both, or scores that need no order."""
        super().check(reward)
        if self.mode == TWO_GAMES and sees_one_order(reward):
            raise ConfigError(
                f"{reward.name} sees each pair in one order and {TWO_GAMES} needs both: name a "
                f"pairwise judge that plays both orders, or take --mode {SINGLE_GAME}."
            )

    def recorded_scores(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """Scores by id as for any benchmark, or the published files: the scores of both answers in
        both games, by pair.

        In these a game is a win of the answer shown second unless the first one scores strictly
        higher, so that two equal scores contradict each other.
        """
        first, rows = peek(rows)
        if not {"pair_id", "label", "score_A", "score_B"} <= first.keys():
            yield from super().recorded_scores(rows, samples, **rule)
            return
        self.under(**rule)
        for row in recorded_rows(rows):
            scores = [row.score(column) for column in _SCORES]
            if None in scores[2:]:
                scores[2:] = scores[:2]
            a, b, a_swapped, b_swapped = scores
            games = (_won(a, b), turned(_won(b_swapped, a_swapped)))
            yield _judge(row), self._played(row, games)

    def replayed(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """The published outputs: one text a game, read as its judge's protocol reads it; what it
        cannot read is a tie.
        """
        self.under(**rule)
        pairs: dict[tuple[str, str], tuple[RecordedRow, dict[str, Verdict]]] = {}
        for row in recorded_rows(rows, "pair_id", "label", "judge_model", "order", "raw_text"):
            order = str(row["order"])
            if order not in ("AB", "BA"):
                raise row.unfit("order", "AB or BA")
            read = judgebench_reader(str(row.get("judge_name") or "arena_hard"))
            verdict = read(row.text())
            key = repr(_judge(row)), row.named("pair_id")
            first, games = pairs.setdefault(key, (row, {}))
            if self.recorded_vote(row) != self.recorded_vote(first):
                raise DataError(
                    f"recorded row {row.number}: pair '{key[1][:80]}' has another label than in its "
                    f"other game."
                )
            if order in games:
                raise DataError(
                    f"recorded row {row.number}: pair '{key[1][:80]}' has a second text of order "
                    f"{order}; keep one."
                )
            games[order] = verdict if order == "AB" else turned(verdict)
        for row, games in pairs.values():
            yield _judge(row), self._played(row, (games.get("AB"), games.get("BA")))

    def _played(self, row: RecordedRow, games: tuple[Verdict, Verdict]) -> Judged:
        category, name = _category(str(row.get("source") or "")), row.named("pair_id")
        return judged_pair(name, self.recorded_vote(row), games, category, unread=0)

    def recorded_scorer(self, seed: int = 0) -> RuleScorer:
        """Two games, with the pairs beside them of which a text holds no verdict."""
        return CountingUnreadable(self.scorer(seed))

    def recorded_line(self, group: JudgeGroup, report: Report) -> Extra:
        """Judge, number of pairs, score and that of each category, and how far to trust them."""
        if not group:
            return super().recorded_line(group, report)
        scores = {name: part.score for name, part in report.by_subset.items()}
        known = {"n": report.n, "score": report.score, "by_category": scores}
        return {**group, **known, **reliability(report)}


def _category(source: str) -> str:
    return beginning(source, CATEGORIES) or "other"


def _judge(row: Row) -> JudgeGroup:
    """Who judged which model's answers by which protocol; the two models' pairs are published
    apart.
    """
    about = ("judge_model", "judge_name", "response_model")
    return {name: str(row[name]) for name in about if row.get(name)} or {"judge_model": ""}


def _won(first: float | None, second: float | None) -> Verdict:
    """Upstream's reading of two scores: the second answer wins unless the first scores higher."""
    return None if first is None or second is None else 1 if first > second else -1


TextReader = Callable[[str], Verdict]

_ARENA_LABEL = re.compile(r"\[\[([AB<>=]+)\]\]")
_PROMETHEUS = re.compile(
    r"(?:\[RESULT\](?:\s+Response)?|\[RESULT:\s*|\[Response\s+|(?:^|\n)Result:?\s*)\s*(A|B)(?:\]"
    r"|\s|$)",
    re.IGNORECASE | re.MULTILINE,
)
_COMPARED: Mapping[str, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0}


def arena_hard(text: str) -> Verdict:
    """All bracketed labels of both attempts have to be one and the same string; `>>` and `>` are
    two different ones.
    """
    labels = set(_ARENA_LABEL.findall(text))
    return _COMPARED.get(labels.pop().replace(">>", ">")) if len(labels) == 1 else None


def vanilla(text: str) -> Verdict:
    """The text is nothing but "Output (a)" or "Output (b)"."""
    return {"Output (a)": 1, "Output (b)": -1}.get(text.strip())


def panda_lm(text: str) -> Verdict:
    """The first line is 1 or 2; everything else is a tie."""
    return {"1": 1, "2": -1}.get(text.strip().split("\n")[0], 0)


def judge_lm(text: str) -> Verdict:
    """The first line is two numbers; everything else is a tie."""
    parts = text.split("\n")[0].replace(",", " ").split(" ")
    try:
        first, second = map(float, parts)
    except ValueError:
        return 0
    return sign(first, second) or 0


def prometheus_2(text: str) -> Verdict:
    """A or B after a result mark; the first one counts."""
    match = _PROMETHEUS.search(text)
    return None if match is None else {"A": 1, "B": -1}[match[1].upper()]


def skywork_critic(text: str) -> Verdict:
    """Any capital A is a win of the first answer, else any capital B one of the second."""
    return 1 if "A" in text else -1 if "B" in text else None


JUDGEBENCH: Mapping[str, TextReader] = {
    "arena_hard": arena_hard,
    "vanilla": vanilla,
    "panda_lm": panda_lm,
    "judge_lm": judge_lm,
    "auto_j": final_decision,
    "prometheus_2": prometheus_2,
    "skywork_critic": skywork_critic,
    "compass_judger": arena_hard,
}
"""By the name of the judge as JudgeBench has it."""


def judgebench_reader(judge: str) -> TextReader:
    """The reader of a judge of JudgeBench; ConfigError with the nearest names for another."""
    if judge not in JUDGEBENCH:
        raise ConfigError(unknown_name("judge of JudgeBench", judge, JUDGEBENCH))
    return JUDGEBENCH[judge]


class _Games(SideBySide):
    """Pairs under both rules; the official one holds unless some pair was played once only."""

    def __init__(self, mode: str | None = None) -> None:
        two, single = (TWO_GAMES, [SINGLE_GAME]), (SINGLE_GAME, list[str]())
        super().__init__(
            {
                TWO_GAMES: SubsetTallies("two_game_sign", two_game_credit, is_pair, two_game_share),
                SINGLE_GAME: SubsetTallies(
                    "single_game", single_game_credit, is_pair, single_game_share
                ),
            },
            [two, single, two],
            once=mode == SINGLE_GAME,
        )
        self._orders = Orders()
        self._unread_is_a_tie = Tally()
        self._unread = 0

    def add(self, judged: Judged) -> float | None:
        """Count one pair; gives what it earned, in the single game where it was played once."""
        self._orders.add(judged)
        if judged.judgements and judged.status in ("scored", "unscored") and is_pair(judged.chosen):
            first, second, label = games(judged)
            self._unread += first is None or second is None
            self._unread_is_a_tie.add(float(((first or 0) + (second or 0)) * label > 0))
        return super().add(judged)

    def report(self, *, gaps: bool = True) -> Report:
        """Also what both orders did, and the headline as upstream prints it."""
        report = super().report(gaps=gaps)
        if self.times == 1:
            return report
        upstream = {"with_upstream_defaults": self._unread_is_a_tie.mean} if self._unread else {}
        return with_extra(report, {**self._orders.extra(), **upstream})
