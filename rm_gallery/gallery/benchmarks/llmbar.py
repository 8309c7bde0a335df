"""LLMBar: pairs in which one answer follows the instruction and the other only looks better, shown
in both orders.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

from rm_gallery.core.data.load.converters import (
    RowRef,
)
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.gallery.benchmarks.figures import Extra, Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    JudgeGroup,
    Recorded,
    RecordedRow,
    Row,
    Rows,
    Samples,
    Verdict,
    is_pair,
    judged_pair,
    recorded_rows,
    turned,
)
from rm_gallery.gallery.benchmarks.preferences import TwoAnswers
from rm_gallery.gallery.benchmarks.rules import (
    CountingUnreadable,
    Credit,
    RuleScorer,
    SideBySide,
    SubsetTallies,
    absent,
    games,
    mean_as_published,
    mean_of,
    mean_of_orders_credit,
    pair_credit,
    reliability,
    single_game_credit,
)

ADVERSARIAL = tuple(f"adversarial_{name}" for name in ("neighbor", "gptinst", "gptout", "manual"))
SETS = (
    "natural",
    *ADVERSARIAL,
    "casestudy_constraint",
    "casestudy_negation",
    "casestudy_normal",
    "casestudy_base_9",
    "casestudy_base_10",
    "processed_faireval",
    "processed_llmeval2",
    "processed_mtbench",
)
_LAST_WORD = {re.sub(r"[^a-z0-9]", "", name.split("_", 1)[-1]): name for name in SETS}
ONE_ORDER = "; the published figures average both, as a pairwise judge does."
_SHARES = ("correct_False", "correct_True", "correct_both", "equal")
_RECORDED = ("subset", "evaluator", "method", "index", "label", "stage", "kind", "swap", "raw_text")


class LLMBar(TwoAnswers):
    """Accuracy in both orders, averaged; pooled, with the published sets apart and the mean of the
    adversarial ones.

    A judge that compares is asked in both orders. Scores know no order: there the right answer has
    to score strictly higher, and `extra["mean_of_orders"]` holds what the benchmark's rating
    methods earn, which are right in one order when two ratings are equal. A judge that sees one
    order only is scored by that order, and the figure says so.
    """

    name = "llmbar"
    aliases = ("llm-bar", "princeton-nlp/LLMBar")
    version = "repository at 900616b"
    chance = 0.5

    own_columns = frozenset({"input", "output_1", "output_2", "label"})
    asked = "input"
    answers = ("output_1", "output_2")
    votes = {1: 1, 2: -1}
    expected = "1 or 2"
    row_id = "id"
    task = "instruction_following"
    one_order = ONE_ORDER

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset`, of the column or else of the file's or folder's name where it is a published
        set.
        """
        return {"subset": row.get("subset") or _set_of(where.source)}

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count both orders; a pair of which one has no verdict is unscored."""
        return _BothOrders(mean_of_orders_credit)

    def replayed(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """The published results, one row a text: subset, evaluator, method, index, label, stage,
        kind, swap, raw_text.

        Every text is read again as its method has it, recorded winners are not used; the last stage
        of a method decides, so that the swap methods look at a pair again where their two orders
        disagreed.
        """
        self.under(**rule)
        texts: dict[tuple[str, str, str, int], _Texts] = {}
        for row in recorded_rows(rows, *_RECORDED):
            subset, evaluator, method = (str(row[name]) for name in _RECORDED[:3])
            key = subset, evaluator, method, row.integer("index")
            sign = self.vote_of(row["label"])
            if sign is None or texts.setdefault(key, _Texts(sign)).label != sign:
                raise row.unfit("label", "1 or 2, the same for all texts of a pair")
            texts[key].add(row)
        for (subset, evaluator, method, index), written in texts.items():
            verdicts = written.read(evaluator, method)
            yield (
                {"subset": subset, "evaluator": evaluator, "method": method},
                judged_pair(f"{subset}:{index}", written.label, verdicts, subset),
            )

    def recorded_scorer(self, seed: int = 0) -> RuleScorer:
        """Both orders as published: a text without a verdict is wrong in its order."""
        return CountingUnreadable(_BothOrders(mean_as_published))

    def recorded_line(self, group: JudgeGroup, report: Report) -> Extra:
        """The published statistics of a run of a judge on a set, as shares."""
        if not {"subset", "evaluator", "method"} <= group.keys():
            return super().recorded_line(group, report)
        shares = {name: report.extra[name] for name in _SHARES}
        score = {"correct_average": report.score}
        return {**group, "n": report.n, **shares, **score, **reliability(report)}


def _set_of(source: str) -> str | None:
    """The published set a file belongs to: `llmbar_adversarial_manual.parquet`,
    `Adversarial/Manual/dataset.json`.
    """
    path = PurePath(source.replace("\\", "/"))
    for name in (path.stem, path.parent.name):
        bare = re.sub(r"[^a-z0-9]", "", name.lower())
        matches = [word for word in _LAST_WORD if bare.endswith(word)]
        if matches:
            return _LAST_WORD[max(matches, key=len)]
    return None


TextReader = Callable[[str], Verdict]


def _naming(pattern: str) -> TextReader:
    """Reads the output that a text names by a pattern; where it names both, the first."""
    first, second = (re.compile(pattern.format(side), re.MULTILINE) for side in "ab")

    def read(text: str) -> Verdict:
        stripped = text.strip()
        return 1 if first.search(stripped) else -1 if second.search(stripped) else None

    return read


llmbar_answer = _naming(r"^ ?Output \({}\)")
"""A line that begins with "Output (a)", else one with "Output (b)"."""
# the dot stands for any character but a line end: a text that ends in "better" is not read
llmbar_explained = _naming(r"Output \({}\) is better.")
"""The sentence "Output (a) is better." anywhere, else the same of (b)."""
LLMBAR_METHODS = (
    "Vanilla Vanilla_NoRules Vanilla_1shot Vanilla_2shot CoT Metrics Reference Metrics_Reference "
    "Swap Swap_CoT Rating Rating_NoRules Rating_Metrics Rating_Reference Rating_Metrics_Reference"
).split()


def llmbar_reader(evaluator: str, method: str, kind: str) -> TextReader:
    """The reader of a text of LLMBar: what a judge explains at length names the better output, all
    else is the answer alone.

    `kind` is compare or synthesize, the second look of the swap methods. PaLM2 was asked for its
    answer first in every method.
    """
    if method not in LLMBAR_METHODS:
        raise ConfigError(unknown_name("method of LLMBar", method, LLMBAR_METHODS))
    explained = {"CoT": evaluator != "PaLM2", "Swap": kind != "synthesize", "Swap_CoT": True}
    return llmbar_explained if explained.get(method) else llmbar_answer


def llmbar_ratings(first: str, second: str) -> tuple[Verdict, Verdict]:
    """The verdicts of two ratings in either order, both naming outputs: equal ones are right in
    exactly one order.

    So are two of which one is no whole number.
    """
    try:
        a, b = int(first), int(second)
    except ValueError:
        return 1, -1
    return (1 if a > b else -1), (-1 if b > a else 1)


@dataclass
class _Texts:
    """What a method wrote on one pair: texts by stage and order, or two ratings."""

    label: int
    compared: dict[tuple[int, bool], tuple[str, str]] = field(default_factory=dict)
    rated: dict[str, str] = field(default_factory=dict)

    def add(self, row: RecordedRow) -> None:
        """Keep one text; what a judge wrote to itself before its verdict is none."""
        kind, written = str(row["kind"]), row.text()
        if kind.startswith("rating_output"):
            self.rated[kind] = written
        elif kind in ("compare", "synthesize"):
            if not isinstance(row["swap"], bool):
                raise row.unfit("swap", "true or false")
            self.compared[row.integer("stage"), row["swap"]] = kind, written

    def read(self, evaluator: str, method: str) -> tuple[Verdict, Verdict]:
        """The verdicts of both orders, naming the outputs; the last stage decides."""
        if self.rated:
            first, second = (self.rated.get(f"rating_output_{place}", "") for place in (1, 2))
            return llmbar_ratings(first, second)
        last = max((stage for stage, _ in self.compared), default=0)
        verdicts: list[Verdict] = []
        for swapped in (False, True):
            kind, written = self.compared.get((last, swapped), ("compare", ""))
            verdicts.append(llmbar_reader(evaluator, method, kind)(written))
        return verdicts[0], turned(verdicts[1])


class _BothOrders(SideBySide):
    """Pairs under the rule that fits how often they were shown: twice, once, or not as pairs at
    all.
    """

    def __init__(self, credit: Credit) -> None:
        def share(right: Callable[[Verdict, Verdict, int], bool]) -> SubsetTallies:
            """The share of pairs of which the verdicts of both orders and the label say so."""
            return SubsetTallies(
                "mean_of_orders",
                lambda one: None if credit(one) is None else float(right(*games(one))),
                is_pair,
            )

        super().__init__(
            {
                "pair_strict": SubsetTallies("pair_strict", pair_credit, is_pair),
                "single_game": SubsetTallies("single_game", single_game_credit, is_pair),
                "mean_of_orders": SubsetTallies("mean_of_orders", credit, is_pair),
                "correct_False": share(lambda first, _, label: first == label),
                "correct_True": share(lambda _, second, label: second == label),
                "correct_both": share(lambda first, second, label: first == second == label),
                "equal": share(lambda first, second, _: first == second),
            },
            [("pair_strict", ["mean_of_orders"]), ("single_game", []), ("mean_of_orders", _SHARES)],
        )

    def report(self, *, gaps: bool = False) -> Report:
        """Also the mean of the adversarial sets."""
        report = super().report(gaps=not self.times)
        adversarial = {n: part for n, part in report.by_subset.items() if n in ADVERSARIAL}
        if not adversarial:
            return report
        mean = mean_of(adversarial[n].score for n in ADVERSARIAL if n in adversarial)
        absent_sets = absent(ADVERSARIAL, adversarial)
        return with_extra(report, {"adversarial_mean": mean, "adversarial_absent": absent_sets})
