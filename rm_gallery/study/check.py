"""A reward's check before a launch: what it gives to completions of known worth, and what is wrong
with that.
"""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import correlation, fmean
from typing import TYPE_CHECKING, Any, Literal

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions
from rm_gallery.core.reward.compose import Composition, WeightedSum
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.resolve import cases_beside, resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import UNDECLARED
from rm_gallery.core.stats.agreement import complete_pairs
from rm_gallery.core.utils.defaults import CHECK_CEILING
from rm_gallery.core.utils.errors import ConfigError, Inapplicable, Unscored
from rm_gallery.core.utils.models import copy_with
from rm_gallery.envs.environment import EnvironmentReward
from rm_gallery.gallery.benchmarks.figures import Record, plain
from rm_gallery.integrations.causes import given, trainers
from rm_gallery.integrations.scoring import broken_by_answer
from rm_gallery.study.attacks import forged_answers, read_texts, with_text
from rm_gallery.study.check_cases import (
    BREAKING,
    NEAR,
    Case,
    Expected,
    Trial,
    Trials,
    Tried,
    built_in_cases,
    cases_of_example,
    forms,
    read_cases,
    trials,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Level = Literal["fault", "note"]
PARTLY = ("truncated", "hollow", "wrong", "all answers")
"""Completions in the right form that lack the answer, or say everything at once."""
HONEST = ("gold", "wrong", "hollow")
"""Completions that try to answer: breaking the reward must not get more than the lowest of them."""
SAME, MIRRORED, LEAST = 0.9, 0.99, 5


@dataclass(frozen=True)
class Weakness(Record):
    """One weakness of a reward.

    Attributes:
        level: a fault costs a training run, a note is worth knowing.
        name: a short code, such as empty_rewarded.
        what: one sentence with the figures.
        where: the completions it was seen on.
    """

    level: Level
    name: str
    what: str
    where: tuple[str, ...] = ()


@dataclass
class RewardCheck(Record):
    """A reward's check: all completions with their scores, and what was found."""

    reward: str
    full: float | None
    """The score a completion without fault should get, None where nobody knows."""
    tried: list[Tried]
    findings: list[Weakness] = field(default_factory=list)
    training: dict[str, float | None] = field(default_factory=dict)
    """Score in training by kind of completion, best first: those that try to break the reward and
    honest ones. None for no score, whatever its status, that the completion is not shown to have caused:
    it is worth what others get, and has their mean's place; where the reward's range is open, trainers
    refuse what is missing."""
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What a missing score becomes that the completion did not cause (mean, none, error or refused),
    and the trainers that treat it so.
    """

    @property
    def faults(self) -> list[Weakness]:
        """The findings that fail the check."""
        return [finding for finding in self.findings if finding.level == "fault"]

    @property
    def untried(self) -> str:
        """Which completions could not be made of any case, and why; empty where all were."""
        kinds = {one.kind for one in self.tried}
        missing = [kind for kind in (*PARTLY, "off-format") if kind not in kinds]
        if not missing:
            return ""
        why = (
            "no gold completion states its answer inside more text, where it could be changed or "
            "left out"
            if "gold" in kinds
            else "no case has a gold completion, or an answer to make one of"
        )
        return f"not tried: {', '.join(missing)}: {why}; --cases FILE names others"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        return {
            "reward": self.reward,
            "full": self.full,
            "passed": not self.faults,
            "findings": plain(self.findings),
            "training": self.training,
            "missing": plain(self.missing),
            "completions": plain(self.tried),
        }


@library_loop.blocks
def check_reward(
    reward: Any,
    cases: Any = None,
    *,
    reference: str | None = None,
    full: float | None = None,
    ceiling: float = CHECK_CEILING,
    forge: bool = False,
    params: Mapping[str, Any] | None = None,
    llm: Any = None,
    base_url: str | None = None,
    options: RunOptions | None = None,
    **run_options: Unpack[RunKeywords],
) -> RewardCheck:
    """Try a reward on completions of known worth and say what a training run would find first.

    Args:
        reward: anything `resolve` takes.
        cases: a file of tasks or rows, see `read_cases`. By default the file's own `CASES`, the
            example of a registered reward, or four built-in questions, whose right answer is tried
            in seven forms.
        reference: the column with the reference answer.
        full: the score of a completion without fault; by default the reward's best score, of an
            environment the sum of its positive weights.
        ceiling: the share of the gold completion's score that one which deserves nothing may get.
        forge: whether programs that solve nothing and want to pass are tried on each case's code
            tests.
        params: constructor fields of the reward, such as `weights`.
        llm: the judge, where it needs one.
        base_url: the judge's endpoint.
        options: how the judging goes.
        **run_options: fields of `RunOptions`, which win over `options`.

    Raises:
        ConfigError: the reward cannot be built, or a case does not fit.
    """
    built, known = reward_and_cases(
        reward, cases, reference, params=params, llm=llm, base_url=base_url
    )
    if forge:
        known = [with_forgeries(case) for case in known]
    return Checking(built, known, full, ceiling, options, run_options).run()


def reward_and_cases(
    reward: Any,
    cases: Any,
    reference: str | None,
    *,
    params: Mapping[str, Any] | None = None,
    llm: Any = None,
    base_url: str | None = None,
) -> tuple[BaseReward, list[Case]]:
    """The reward, built, and the cases it is tried on: those given, its file's own, its example, or
    the built-in ones.
    """
    if isinstance(reward, str) and cases is None:
        if ":" not in RewardRegistry.spelled(reward):
            registered = RewardRegistry.get(reward)
            shown = {} if registered.example is None else registered.example.params
            built = resolve(reward, {**shown, **(params or {})}, llm, base_url)
            return built, cases_of_example(registered) or built_in_cases()
        cases = cases_beside(reward)
    built = resolve(reward, params, llm, base_url)
    return built, built_in_cases() if cases is None else read_cases(cases, reference)


def with_forgeries(case: Case) -> Case:
    """The case with programs that solve nothing and want to pass; ConfigError where it has no code
    tests.
    """
    try:
        forged = forged_answers(case.sample)
    except Unscored as error:
        raise Inapplicable(f"{case.name}: {error}", "forge") from None
    return case._replace(
        written=(
            *case.written,
            *(Trial(name, one, Expected(word="low")) for name, one in forged.items()),
        )
    )


class Checking(Trials):
    """One check under way.

    Raises ConfigError for a `ceiling` that is no share.
    """

    def __init__(
        self,
        reward: BaseReward,
        cases: Sequence[Case],
        full: float | None,
        ceiling: float,
        options: RunOptions | None,
        run_options: Mapping[str, Any],
    ) -> None:
        if not 0 <= ceiling < 1:
            raise ConfigError(
                f"ceiling is {ceiling!r}; it is a share of the full reward, 0 up to 1."
            )
        super().__init__(reward, options, run_options)
        self.cases, self.ceiling = cases, ceiling
        self.full, self.weaknesses = full, list[Weakness]()

    def run(self) -> RewardCheck:
        """Try every completion of every case and look for what is wrong."""
        answered = list(zip(self.cases, self.golds(), strict=True))
        self.first = next(((case, gold) for case, gold in answered if gold is not None), None)
        self.settle((case, trials(case, gold, self.steps)) for case, gold in answered)
        self._outcomes()
        self._gold()
        self._undeserved()
        self._expected()
        self._components()
        if isinstance(self.reward, WeightedSum):
            for sentence in self.reward.uneven():
                self._say("uneven_weights", sentence=sentence)
        self._doors()
        training, missing = self._training(), defaultdict[str, tuple[str, ...]](tuple)
        for name, trainer in trainers().items():
            missing[given(self.reward, "endpoint", trainer.on_error)] += (name,)
        self.weaknesses.sort(key=lambda finding: finding.level != "fault")
        return RewardCheck(
            self.reward.name, self.full, self.tried, self.weaknesses, training, dict(missing)
        )

    # -- asking ------------------------------------------------------------------------------------

    def settle(self, asked: Iterable[tuple[Case, Sequence[Trial]]]) -> None:
        """Score the completions of each case, gold ones among them, and settle between what scores
        their shares are counted.
        """
        self.tried = self.judge(asked)
        self.gold = {one.case: one.gain for one in self._of_kinds("gold")}
        self.full = self._best_score() if self.full is None else self.full
        self.floor = self._worthless()

    def golds(self) -> list[DataOutput | None]:
        """The completion of each case that deserves full reward: the one given, or the form or
        answer that gets most.
        """
        asked, worth = list[tuple[Case, list[Trial]]](), defaultdict[str, float](float)
        for case in self.cases:
            answers = [one.output for one in case.written if one.expected is None]
            # a form has one name in all cases, so that one is chosen for all of them
            owner = case.name if answers else ""
            if not answers and case.truth:
                answers = forms(case, self.steps)
            if case.gold is not None:
                answers = []
            asked.append(
                (case, [Trial(f"{owner} {n}", output) for n, output in enumerate(answers)])
            )
        for one in self.judge(asked):
            worth[one.kind] += -math.inf if one.gain is None else one.gain
        return [
            max(answers, key=lambda one: worth[one.kind]).output if answers else case.gold
            for case, answers in asked
        ]

    def _best_score(self) -> float | None:
        best = self.reward.score_range[1 if self.turn > 0 else 0]
        if best is not None:
            return best
        if isinstance(self.reward, EnvironmentReward):
            names = {name for one in self.tried for name in one.scored.components}
            return math.fsum(max(0.0, self.reward.weights.get(name, 1.0)) for name in names) or None
        known = _scores(self.tried)
        return 1.0 if known and all(0 <= score <= 1 for score in known) else None

    def _worthless(self) -> float:
        """The score of a completion without any merit and without a flaw, times the direction:
        penalties lie below it.
        """
        if isinstance(self.reward, WeightedSum):
            pays = self.reward.pays()
            return math.fsum(
                low or 0.0 for name, (low, _) in pays.items() if self.reward.weights[name] > 0
            )
        low = self.reward.score_range[0 if self.turn > 0 else 1]
        if low is not None:
            return self.turn * low
        if all(gain > 0 for gain in self.gold.values() if gain is not None):
            return 0.0
        return min(one.gain for one in self.tried if one.gain is not None)

    # -- findings ----------------------------------------------------------------------------------

    def _say(
        self, key: str, seen: Iterable[Tried] = (), level: Level | None = None, **parts: Any
    ) -> None:
        """Note a weakness as `texts/weaknesses.yaml` has it, or on another level."""
        usual, what = read_texts("weaknesses")[key]
        where = tuple(dict.fromkeys(f"{one.case}: {one.kind}" for one in seen))
        name = key.partition(".")[0]
        self.weaknesses.append(Weakness(level or usual, name, what.format_map(parts), where))

    def _of_kinds(self, *kinds: str) -> list[Tried]:
        return [one for one in self.tried if one.kind in kinds]

    def _outcomes(self) -> None:
        failed = defaultdict[str, list[Tried]](list)
        for one in self.tried:
            if one.scored.status == "failed":
                failed[one.scored.code].append(one)
        for code, seen in failed.items():
            why = seen[0].scored.reason
            name = "invalid_result" if code in ("invalid_result", UNDECLARED) else "raises"
            if "finite number" in why or "invalid_score" in code:
                name = "non_finite"
            self._say(name, seen, n=len(seen), reason=code, why=why)
        unscored = _unscored(self.tried)
        unwanted = [one for one in unscored if not one.expected or one.expected.word != "unscored"]
        if unscored and len(unscored) == len(self.tried):
            self._say("nothing_scored", unscored[:1], why=unscored[0].scored.reason)
        elif unwanted:
            self._say("unscored", unwanted, n=len(unwanted), why=unwanted[0].scored.reason)

    def _gold(self) -> None:
        gold, full = self._of_kinds("gold"), self.full
        if lost := _unscored(gold):
            self._say("gold_unscored", lost, why=lost[0].scored.reason)
        if full is None:
            self._say("full_unknown")
        elif short := [one for one in gold if self.less(one.scored.value, full)]:
            first = short[0].scored
            # the best answer there is
            chosen = all(case.gold is None and case.written for case in self.cases)
            parts = ", ".join(f"{name} {value:g}" for name, value in first.components.items())
            got = f"{first.value:g} of {full:g}{f' ({parts})' if parts else ''}"
            self._say("gold_below_full", short, "note" if chosen else "fault", got=got)

    def share(self, one: Tried) -> float | None:
        """The score as a share of its case's gold score above the lowest possible one."""
        top = self.gold.get(one.case)
        if top is None and self.full is not None:
            top = self.turn * self.full
        if one.gain is None or top is None or top - self.floor <= NEAR:
            return None
        return (one.gain - self.floor) / (top - self.floor)

    def _undeserved(self) -> None:
        for kind, rule in read_texts("completions").items():
            shares = [
                (share, one)
                for one in self._of_kinds(kind)
                if (share := self.share(one)) is not None
            ]
            lowest = rule.get("least", -math.inf) - NEAR
            highest = rule.get("most", self.ceiling) + NEAR
            where = [one for share, one in shares if not lowest <= share <= highest]
            if not where:
                continue
            most, worst = max(shares, key=lambda pair: pair[0])
            if most < rule.get("told_from", -math.inf):
                continue
            what = f"gets {100 * most:.0f} % of what gold gets ({worst.scored.value:g})"
            level: Level | None = None
            if kind in PARTLY and most < SAME:
                level, what = "note", f"{what}; gate what is secondary on what matters"
            name = f"{kind.replace(' ', '_')}_rewarded"
            self._say(rule.get("finding", name), where, level, kind=kind, what=what)

    def _expected(self) -> None:
        for one in self.tried:
            if one.expected is not None and not self._meets(one, one.expected):
                got = one.scored.status if one.scored.value is None else f"{one.scored.value:g}"
                self._say("unexpected", [one], kind=one.kind, got=got, expected=one.expected)

    def _meets(self, one: Tried, expected: Expected) -> bool:
        score = one.scored.value
        if score is None or expected.word == "unscored":
            return expected.word == one.scored.status
        if expected.word == "full":
            return self.full is None or not self.less(score, self.full)
        if expected.word == "low":
            return (self.share(one) or 0.0) <= self.ceiling + NEAR
        return expected.holds(score)

    def _components(self) -> None:
        scored = [one for one in self.tried if one.scored.value is not None]
        if len({one.kind for one in scored}) < 2:
            return
        columns = {
            name: [one.scored.components.get(name) for one in scored]
            for name in dict.fromkeys(name for one in scored for name in one.scored.components)
        }
        scores = _scores(scored)
        moves = _span(scores) > NEAR
        if not moves:
            self._say("constant.score", value=scores[0])
        for name, column in columns.items():
            known = [value for value in column if value is not None]
            if moves and len(known) == len(scored) and _span(known) <= NEAR:
                self._say("constant.component", name=name, value=known[0])
            outside = [
                one
                for one, value in zip(scored, column, strict=True)
                if value is not None and not 0 <= value <= 1
            ]
            if outside and not self._in_own_range(name, known):
                self._say("outside_0_1", outside, name=name, low=min(known), high=max(known))
        for first, second in combinations(columns, 2):
            pairs = complete_pairs(columns[first], columns[second])
            if len(pairs) < LEAST or any(_span(side) <= NEAR for side in zip(*pairs, strict=True)):
                continue
            r = correlation(*zip(*pairs, strict=True))
            if abs(r) >= MIRRORED:
                self._say("mirrors", name=second, other=first, r=r)

    def _in_own_range(self, name: str, values: Sequence[float]) -> bool:
        """Whether a component is a part of a sum that keeps to a range it declares; what its weight
        then pays is `uneven_weights`.
        """
        part = self.reward.parts().get(name) if isinstance(self.reward, Composition) else None
        if part is None or not part.range_declared or None in part.score_range:
            return False
        declared = Expected(*part.score_range)
        return all(declared.holds(value) for value in values)

    def _training(self) -> dict[str, float | None]:
        """What it gets in training to break the reward, among the honest completions; a fault where
        that pays.
        """
        honest = {kind: _scores(self._of_kinds(kind)) for kind in HONEST}
        training: dict[str, float | None] = {
            kind: fmean(scores) for kind, scores in honest.items() if scores
        }
        if not training or self.first is None or self.reward.kind != "pointwise":
            return training
        scores = _scores(self._of_kinds(*HONEST))
        case, gold = self.first
        asked = [Trial(name, with_text(gold, text, self.steps)) for name, text in BREAKING.items()]
        # a crash, and a rule that is led to find no end, where a neutral answer can be judged
        ends = ("crash",) if self.reward.judged else ("crash", "slow")
        broken: dict[str, float | None] = dict.fromkeys(ends, self.reward.worst_score)
        training["outage"] = None
        for one in self.judge([(case, asked)], blame="probe", progress=False):
            shown = one.scored.value is not None and not broken_by_answer(one.scored)
            (training if shown else broken)[one.kind] = one.scored.value
        lowest = min(scores, key=lambda score: self.turn * score)
        # a missing score that no completion is shown to have caused is worth what others get, whatever
        # its status; without a worst score trainers refuse the reward
        others = None if self.reward.worst_score is None else fmean(scores)
        told = {**training, **broken}
        gets = {name: others if score is None else score for name, score in told.items()}
        paying = [
            f"{name} {got:g}"
            for name in broken
            if (got := gets[name]) is not None and self.less(lowest, got)
        ]
        if paying:
            self._say("breaking_pays", got=", ".join(paying), lowest=lowest)
        ranked = sorted(
            gets.items(), key=lambda item: math.inf if item[1] is None else -self.turn * item[1]
        )
        return {name: told[name] for name, _ in ranked}

    def _doors(self) -> None:
        """What trainers ask of a reward beside its scores: a task that is None, and pickling."""
        if isinstance(self.reward, EnvironmentReward) and self.first is not None:
            self._without_task(*self.first)
        try:
            pickle.dumps(self.reward)
        except Exception as error:  # noqa: BLE001 - whatever keeps an object from being pickled
            self._say("not_picklable", why=f"{type(error).__name__}: {error}")

    def _without_task(self, case: Case, gold: DataOutput) -> None:
        """What an environment says where task is None, of the gold completion and of an empty one."""
        unlabelled = copy_with(gold, answer=copy_with(gold.answer, label=None))
        blank = copy_with(unlabelled.answer, content="", tool_calls=None)
        empty = copy_with(gold, answer=blank, steps=None)
        bare = Case(case.name, DataSample(unique_id=case.name, input=case.sample.input), None)
        tried = self.judge([(bare, [Trial("gold", unlabelled), Trial("empty", empty)])])
        failed = [one.scored for one in tried if one.scored.status == "failed"]
        empty_gain, full = tried[1].gain, self.full
        if failed:
            self._say("raises_without_task", code=failed[0].code, why=failed[0].reason)
        elif empty_gain is not None and full and empty_gain >= self.turn * SAME * full > 0:
            self._say("rewarded_without_task", score=tried[1].scored.value)


def _span(known: Sequence[float]) -> float:
    """Between the lowest and the highest of the numbers."""
    return max(known) - min(known)


def _unscored(seen: Iterable[Tried]) -> list[Tried]:
    """Those of the completions that the reward gave no score."""
    return [one for one in seen if one.scored.status == "unscored"]


def _scores(seen: Iterable[Tried]) -> list[float]:
    """Those of the completions that have one."""
    return [one.scored.value for one in seen if one.scored.value is not None]
