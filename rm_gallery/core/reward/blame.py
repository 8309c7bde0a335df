"""Which answer made itself, or its group, impossible to judge: tried out with control answers, for
every kind of reward.

A judge that cannot be read and code that raises do not say whether the answer made them.

1. The same is tried again. How often it has to fail follows from how often this reward loses a
   score at random: a reward that loses a third of its calls loses an honest answer three times for
   one in 27.
2. Then another answer takes its place in front of the same question: one of this batch, or of
   those before, that the reward has scored. Such are what the reward can read; a function that
   reads JSON fails on any neutral text, which would acquit whoever breaks it. Only where there are
   none do neutral texts. A control replaces all that the candidate made, its turns, what its tools
   said and its workspace: poison in any of them would spoil the control as well.

Where controls get a score the answer is to blame, and has the worst score of the range. Where a
whole group has no score, each of its answers is tried among controls, and the rest is judged
without those that fail: nobody pays for a neighbour.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from rm_gallery.core.data.conversation import at_turn, judged_at
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import detached_options
from rm_gallery.core.engine.repeat import in_round
from rm_gallery.core.model.client import trouble_at
from rm_gallery.core.reward.founding import settled, write_score
from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.reward.judges import asks_a_model, models_of
from rm_gallery.core.reward.outputs import (
    DEADLINE_SHARE,
    PLAIN,
    Control,
    inside,
    may_be_the_answers_doing,
    neutral,
    not_the_reference,
    of_its_form,
    said_of,
    said_of_step,
    stand_in,
)
from rm_gallery.core.score import Score
from rm_gallery.core.utils.models import copy_with

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.engine.progress import Progress

TRIALS = 3
"""How often an answer has to fail at least, and controls have to get a score, before it is to
blame.
"""
FALSE_BLAME = 1 / 5000
"""How likely an honest answer may be blamed."""
MOST_LOST = 0.6
"""A reward that loses more than this share at random says nothing about an answer."""
FEW, OFTEN = 10, 0.1
"""Answers without a score, and their share, from which on a judge is often silent."""
CONTROLS = 8
_PRIOR = (0.5, 5.0)
"""Lost and scored, before anything is known: a single answer has to fail four times."""
_ALIKE = 4
"""So many answers that broke code of the user in one and the same way are taken for an outage."""
REMEMBERED = 1000
"""Scores after which what was seen before counts half."""

T = TypeVar("T")
Said = list[Score[Any]]
"""What was said of each output of a sample."""
Tried = Generator[list[DataSample], list[Said], T]
"""Yields samples to judge, is sent what was said of each, and returns what that shows."""
Trials = Tried[None]
"""Writes what it finds out to the outputs it is about."""


@dataclass(slots=True)
class Losses:
    """How often a reward loses a score at random, whatever the answer.

    The share is of what was lost once and scored when it was tried again, to what was scored at
    once. Answers that break the reward each time are in neither, so that many of them do not hide
    behind one another.
    """

    scored: float = 0.0
    missed: float = 0.0
    """Had no score at once, for whatever reason."""
    lost: float = 0.0
    recent: deque[Control] = field(default_factory=lambda: deque(maxlen=CONTROLS))
    """Answers that got a score, for where a batch has none."""

    @property
    def share(self) -> float:
        """The share of losses among honest answers."""
        return (self.lost + _PRIOR[0]) / (self.scored + _PRIOR[1])

    @property
    def often_silent(self) -> bool:
        """Whether so many answers had no score at once that silence is no news of one of them: what
        its judge says when asked again need not be heard twice.
        """
        return self.missed >= max(FEW, OFTEN * (self.missed + self.scored))

    @property
    def failures(self) -> float:
        """How often an answer has to fail until it is to blame; never, where the reward loses most
        of all.
        """
        if self.share > MOST_LOST:
            return math.inf
        return max(TRIALS, math.ceil(math.log(FALSE_BLAME) / math.log(self.share)))

    @property
    def losses(self) -> int:
        """How many controls may be lost until `TRIALS` have a score: so many that one in twenty loses
        more at random.
        """
        share = min(self.share, MOST_LOST)
        lost, chance = 0, (1 - share) ** TRIALS
        more = chance
        while more < 0.95:
            lost += 1
            chance *= share * (TRIALS + lost - 1) / lost
            more += chance
        return lost

    def note(self, scored: int, missed: int, new: Sequence[Control]) -> None:
        """Take in what a batch scored at once, and how many it did not."""
        if self.scored > REMEMBERED:
            self.scored, self.lost, self.missed = self.scored / 2, self.lost / 2, self.missed / 2
        self.scored += scored
        self.missed += missed
        self.recent.extend(new[-CONTROLS:])


_known: dict[int, Losses] = {}


def known_of(reward: AnyReward) -> Losses:
    """What earlier batches of this object showed: trainers and servers hand over answers one by
    one.
    """
    known = _known.get(id(reward))
    if known is None:
        known = _known[id(reward)] = Losses()
        weakref.finalize(reward, _known.pop, id(reward), None).atexit = False
    return known


class SecondLook:
    """The trials for all of these samples' outputs that have no score and may have caused that
    themselves, in rounds.

    While there is anything `asked`, the caller has `reward` judge it with the options of `probing`
    and hands it to `take`.
    """

    def __init__(self, reward: AnyReward, samples: Iterable[DataSample]) -> None:
        """Find out what is to be tried; nothing is judged here."""
        self.reward, self._round = reward, 0
        self.changed: list[DataSample] = []
        """Those that have another score than before, once all is settled."""
        samples, known = list(samples), known_of(reward)
        suspects = [places for one in samples if (places := list(suspected(reward, one)))]
        if suspects and self._in_trouble():
            suspects = []
        scored = [
            Control(sample, output)
            for sample in (samples if suspects else samples[-REMEMBERED:])
            for output in sample.output
            if _scored(reward, output)
        ]
        reasons = [place.why.reason for places in suspects for place in places]
        batch = _Batch(reward, known, scored, reasons)
        units = {id(one.sample) for one in scored} if reward.compares else scored
        known.note(len(units), len(reasons), scored)
        self._trials = _at_once([batch.trials(places) for places in suspects])
        self.asked = next(self._trials, [])
        """What is to be judged now; empty when all is settled."""
        self._about = [places[0].sample for places in suspects]
        self._before = list(map(self._scores_of, self._about))

    def _in_trouble(self) -> bool:
        """Time and load are no answer's doing: nothing is tried out on an endpoint in trouble."""
        return any(map(trouble_at, models_of(self.reward)))

    def _scores_of(self, sample: DataSample) -> list[Score[float]]:
        return [said_of(self.reward, output) for output in sample.output]

    def probing(self, options: RunOptions) -> RunOptions:
        """The options of this round: it keeps nothing, asks anew, and a trial may take a quarter of
        the deadline.
        """
        seconds = options.deadline or self.reward.deadline
        deadline = None if seconds is None else DEADLINE_SHARE * seconds
        self._round += 1
        # the cache would give the same unreadable reply again
        repeat = in_round(options.repeat, self._round)
        return detached_options(
            options,
            control=RunControl(quiet=True),
            deadline=deadline,
            blame="off",
            total=None,
            repeat=repeat,
        )

    def take(self, judged: list[Said], progress: Progress | None = None) -> None:
        """Go on with what was said of what was `asked`; after the last round samples are counted by what
        they have then.
        """
        try:
            self.asked = self._trials.send(judged)
        except StopIteration:
            self.asked = []
        if self.asked and not self._in_trouble():
            return
        self.asked = []
        for sample, before in zip(self._about, self._before, strict=True):
            if (after := self._scores_of(sample)) != before:
                self.changed.append(sample)
                if progress is not None:
                    progress.count(before, -1)
                    progress.count(after)


def _of_smallest_hash(controls: Iterable[Control]) -> list[Control]:
    def hashed(control: Control) -> bytes:
        said = "\0".join([control.sample.query_text(), *(t.text for t in control.output.turns)])
        return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).digest()

    return heapq.nsmallest(CONTROLS, controls, key=hashed)


def _scored(reward: AnyReward, output: DataOutput) -> bool:
    """Whether the reward could judge it, and has not said that it made itself impossible to."""
    written = output.answer.reward
    blamed = "caused_by" in inside(written.extra_data, reward.key_in(written))
    return reward.score_of_output(output) is not None and not blamed


def _at_once(each: Sequence[Trials]) -> Trials:
    """Several at once: what they ask is judged together."""
    going = [(trials, asked) for trials in each if (asked := next(trials, None)) is not None]
    while going:
        results = iter((yield [sample for _, asked in going for sample in asked]))
        left = []
        for trials, asked in going:
            try:
                left.append((trials, trials.send([next(results) for _ in asked])))
            except StopIteration:
                continue
        going = left


class _Place(NamedTuple):
    """An answer, or a step, without a score, and the outputs that it is tried among."""

    sample: DataSample
    at: int
    why: Score[float]
    step: int | None = None
    others: dict[int, DataOutput] = {}

    @property
    def shown(self) -> list[int]:
        """The places of the outputs that a trial judges."""
        return sorted({*self.others, self.at})

    def trial(self, control: Control | str | None = None) -> DataSample:
        """The sample to judge: the answer itself, or a control in its place, among the others. Of
        steps that one alone is asked about, in the words of the first time; of a control's its
        turn of the same number, which tools have answered like this one, or else its last.
        """
        output, sample = self.sample.output[self.at], self.sample
        if control is not None:
            if self.step is not None and output.is_trajectory:
                output = at_turn(output, self.step)
            sample, output = stand_in(control, sample, output)
        if self.step is not None:
            output = judged_at(output, self.step)
        outputs = {**self.others, self.at: output}
        return copy_with(sample, output=[outputs[i] for i in self.shown])

    def found(self, trial: Said) -> Score[Any]:
        """What became of the answer in a trial."""
        score = trial[self.shown.index(self.at)]
        return score if self.step is None else score.steps[-1]

    def blame(self, reward: AnyReward) -> None:
        """Write that the answer caused it."""
        output = self.sample.output[self.at]
        why = (
            f"The answer made it impossible to judge; another answer could be judged. "
            f"{self.why.reason}"
        )
        lost = replace(self.why.without_value(why), cause="answer")
        written_to = output.answer if self.step is None else output.turns[self.step]
        write_score(reward, written_to, settled(reward, lost))


def suspected(reward: AnyReward, sample: DataSample) -> Iterable[_Place]:
    """The places without a score that may be their answers' own doing."""
    if reward.finds_blame_in_parts:
        return
    judged, stepwise = asks_a_model(reward), reward.kind == "stepwise"
    for at, output in enumerate(sample.output):
        places: list[tuple[int | None, Step]] = [(None, output.answer)]
        if stepwise:
            places = [*enumerate(output.turns)]
        for number, step in places:
            if step.reward.issues and may_be_the_answers_doing(
                judged, why := said_of_step(reward, step)
            ):
                yield _Place(sample, at, why, number)


class _Batch:
    """What all trials of a batch share: its reward, how often that loses a score at random, and
    the answers it has scored.
    """

    def __init__(
        self,
        reward: AnyReward,
        losses: Losses,
        scored: Sequence[Control],
        reasons: Sequence[str],
    ) -> None:
        self.reward, self.losses, self._scored = reward, losses, scored
        self._earlier = [*losses.recent]
        # many answers broke code of the user in one and the same way
        self._is_outage_likely = (
            reward.may_ask_others and len(reasons) >= _ALIKE and len(set(reasons)) == 1
        )

    @cached_property
    def judged(self) -> bool:
        """Whether a model judges."""
        return asks_a_model(self.reward)

    @cached_property
    def _smallest(self) -> list[Control]:
        return _of_smallest_hash(self._scored)

    @cached_property
    def _by_question(self) -> dict[str, list[Control]]:
        by_question: dict[str, list[Control]] = {}
        for control in self._scored:
            by_question.setdefault(control.sample.query_text(), []).append(control)
        return by_question

    def controls(self, sample: DataSample) -> list[Control]:
        """Scored answers to the same question, then to others, then of earlier batches.

        Those of the smallest hash: the same in whatever order the batch was judged. None that is the
        reference to the letter: a function gives that its score before it asks anything, and seems to
        work while its own judge is down.
        """
        same_question = _of_smallest_hash(self._by_question.get(sample.query_text(), ()))
        candidates = [*same_question, *self._smallest, *self._earlier]
        controls = {id(one.output): one for one in candidates}.values()
        if all(self.is_settled(said_of(self.reward, one.output)) for one in controls):
            return []
        reference = str(sample.reference()).strip()
        return [one for one in controls if one.output.answer.text.strip() != reference][:CONTROLS]

    def is_settled(self, score: Score[float]) -> bool:
        """Whether a score may have been given without asking whom the reward asks: a function that
        gives what has no format 0 seems to work while its service is down.
        """
        return self._is_outage_likely and score.value == self.reward.worst_score

    def may_be_its_doing(self, outcome: Score[Any]) -> bool:
        """Whether the answer may have brought this outcome about."""
        return may_be_the_answers_doing(self.judged, outcome)

    def texts(self, place: _Place) -> list[str]:
        """The neutral texts of which one has to get a score in the answer's place."""
        reference = copy_with(place.sample, output=[place.sample.output[place.at]]).reference()
        texts = neutral(self.judged, reference)
        if self.judged and self.reward.made_of_parts:
            # a composition with a judge may hold rules as well, which read numbers alone
            texts = list(dict.fromkeys([*texts, *neutral(False, reference)]))
        return texts

    def adopt(
        self, sample: DataSample, places: Iterable[int], said: Said, shown: list[int]
    ) -> None:
        """Write to these outputs what was said of them among the outputs `shown`."""
        for place in places:
            write_score(self.reward, sample.output[place].answer, said[shown.index(place)])

    def trials(self, places: Sequence[_Place]) -> Trials:
        """Try the answers of one sample."""
        sample, reward = places[0].sample, self.reward
        if reward.compares and len(sample.output) > 1:
            scored = [
                i
                for i, output in enumerate(sample.output)
                if reward.score_of_output(output) is not None
            ]
            if not scored:
                yield from self._group(sample, places)
                return
            places = [one._replace(others=self._neighbours(one, scored)) for one in places]
        yield from _at_once([_Answer(self, place).trials() for place in places])

    def _neighbours(self, place: _Place, scored: Sequence[int]) -> dict[int, DataOutput]:
        """What an answer is tried among whose neighbours have scores: the best of them for pairs, else
        the whole group.

        The best, since an answer may break its judge just where it would lose.
        """
        outputs, reward = place.sample.output, self.reward
        if reward.kind.trial_size is not None:
            sign = -1.0 if reward.higher_is_better else 1.0
            ranked = sorted(
                scored, key=lambda i: sign * (reward.score_of_output(outputs[i]) or 0.0)
            )
            return {i: outputs[i] for i in ranked[: reward.kind.trial_size - 1]}
        text = self.texts(place)[0]
        return {
            i: output if i in scored else stand_in(text, place.sample, output)[1]
            for i, output in enumerate(outputs)
            if i != place.at
        }

    def _among(
        self, place: _Place, controls: Sequence[Control | str] | None
    ) -> dict[int, DataOutput]:
        """Controls in the places of as many others as a trial takes; of none where there are none."""
        size, outputs = self.reward.kind.trial_size, place.sample.output
        others = [i for i in range(len(outputs)) if i != place.at]
        chosen = others[: None if size is None else size - 1]
        return {
            i: stand_in(control, place.sample, outputs[i])[1]
            for i, control in zip(chosen, cycle(controls or ()), strict=False)
        }

    def _group(self, sample: DataSample, places: Sequence[_Place]) -> Trials:
        """Find who breaks a group of which nobody has a score: each by itself among controls, and judge
        the rest without it.

        Where no answer but these is known that the reward can read, each is tried alone. A group of n
        costs n + 7 judgements where one breaks it always, 2n + 5 where one breaks it beside good answers
        alone, and two where it broke by chance.
        """
        slow = any(place.why.code == "deadline" for place in places)
        if not slow and not (yield from self._fails_again(sample)):
            return
        others = yield from self._readable_controls(places[0])
        if others is None and self.judged:
            return
        trials = [place._replace(others=self._among(place, others)) for place in places]
        said_of_trials = yield [trial.trial() for trial in trials]
        tried = list(zip(trials, said_of_trials, strict=True))
        outcomes = [trial.found(said) for trial, said in tried]
        if not all(outcome.ok or self.may_be_its_doing(outcome) for outcome in outcomes):
            return
        breakers = [t for t, outcome in zip(trials, outcomes, strict=True) if not outcome.ok]
        if not breakers:
            if others is not None:
                yield from self._leave_one_out(sample, places, others)
            return
        # with none of the others as a control, or where each may equal the reference
        unsure = len(breakers) == len(places) or not self.judged
        if unsure and not (yield from self._reads_others(breakers, len(places), others)):
            return
        if not slow:
            breakers = yield from self._fail_each_time(breakers)
        if not breakers:
            return
        for place in breakers:
            place.blame(self.reward)
        broken = {place.at for place in breakers}
        rest = [(trial, said) for trial, said in tried if trial.at not in broken]
        left = [trial.at for trial, _ in rest]
        if len(rest) > 1:
            [said] = yield [copy_with(sample, output=[sample.output[i] for i in left])]
            self.adopt(sample, left, said, left)
        else:
            for trial, said in rest:
                self.adopt(sample, left, said, trial.shown)

    def _fails_again(self, sample: DataSample) -> Tried[bool]:
        """Whether nobody of the group gets a score when it is judged again either; what chance broke is
        mended, as for one answer.
        """
        again = yield [copy_with(sample)]
        if not _any_ok(again[0]):
            return any(map(self.may_be_its_doing, again[0]))
        self.losses.lost += 1
        if self.judged:
            again = [*again, *(yield [copy_with(sample)])]
        if all(map(_any_ok, again)):
            everyone = list(range(len(sample.output)))
            self.adopt(sample, everyone, again[0], everyone)
        return False

    def _readable_controls(self, place: _Place) -> Tried[Sequence[Control | str] | None]:
        """Controls that get a score in a group of their like: answers that the reward has scored, else
        a neutral text, which for a judge, who can read any, need not be tried.
        """
        controls, texts = self.controls(place.sample), self.texts(place)
        choices: list[Sequence[Control | str]] = [controls] if controls else [[t] for t in texts]
        if not controls and len(texts) == 1:
            return texts
        for choice in choices:
            trial = place._replace(others=self._among(place, choice))
            for _ in range(1 + self.losses.losses):
                if trial.found((yield [trial.trial(choice[0])])[0]).ok:
                    return choice
        return None

    def _reads_others(
        self, breakers: Sequence[_Place], of: int, others: Sequence[Control | str] | None
    ) -> Tried[bool]:
        """Whether any answer but these gets a score, and a neutral one as well where those are the
        controls: a judge that is shown equal answers may have nothing to tell apart.
        """
        if others is None:
            return len(breakers) < of
        if not isinstance(others[0], str):
            return True
        for text in [PLAIN[0]] if self.judged else not_the_reference(others[0]):
            for _ in range(TRIALS):
                if not breakers[0].found((yield [breakers[0].trial(text)])[0]).ok:
                    break
            else:
                return True
        return False

    def _fail_each_time(self, trials: Sequence[_Place]) -> Tried[list[_Place]]:
        """Those that fail so often among controls that it is not chance."""
        if self.losses.failures == math.inf:
            return []
        failing = list(trials)
        for _ in range(int(self.losses.failures) - 2):
            if not failing:
                break
            again = yield [trial.trial() for trial in failing]
            both = zip(failing, again, strict=True)
            failing = [trial for trial, said in both if not trial.found(said).ok]
        return failing

    def _leave_one_out(
        self, sample: DataSample, places: Sequence[_Place], controls: Sequence[Control | str]
    ) -> Trials:
        """Find who breaks its group only beside the others: without it the group can be judged, and
        without any other it cannot, as often as that is tried.
        """
        if self.reward.kind.trial_size is not None or len(places) < 3:
            return
        everyone = dict(enumerate(sample.output))
        asked = []
        for place in places:
            _, control = stand_in(controls[0], sample, everyone[place.at])
            shown = {**everyone, place.at: control}
            asked.append(copy_with(sample, output=list(shown.values())))
        culprits: set[int] = set()
        for _ in range(2 if self.losses.lost else 1):
            judged = yield asked
            able = [
                (place, said) for place, said in zip(places, judged, strict=True) if _any_ok(said)
            ]
            culprits |= {place.at for place, _ in able}
            if len(able) != 1 or len(culprits) != 1:
                return
        [(culprit, without)] = able
        culprit.blame(self.reward)
        others = [i for i in everyone if i != culprit.at]
        self.adopt(sample, others, without, list(everyone))


def _any_ok(said: Said) -> bool:
    return any(score.ok for score in said)


class _Answer:
    """The trials of one answer: the same again, then controls in its place."""

    def __init__(self, batch: _Batch, place: _Place) -> None:
        self.batch, self.place = batch, place
        self.texts, self.controls = batch.texts(place), batch.controls(place.sample)
        self.again: Said = []
        """What counts of the answer tried again: of code the last trial, of a judge the first."""

    def trials(self) -> Trials:
        """Find out who caused the missing score, and write it."""
        verdict = yield from self._verdict()
        place, batch = self.place, self.batch
        if verdict == "answer":
            place.blame(batch.reward)
        elif verdict == "again" and place.step is None:
            # a pair, or a step by itself, is not judged as it is in its whole
            if not batch.reward.compares or len(self.again) == len(place.sample.output):
                batch.adopt(place.sample, [place.at], self.again, place.shown)

    def _tried(self, control: Control | str | None = None) -> Tried[Score[Any]]:
        """What becomes of the same answer, or of a control or a text in its place."""
        [said] = yield [self.place.trial(control)]
        if control is None and not (self.again and self.batch.judged):
            self.again = said
        outcome = self.place.found(said)
        # what has the form of the reference is judged as that is
        is_neutral = isinstance(control, str) and control != of_its_form(self.texts[0])
        return self.place.why if is_neutral and self.batch.is_settled(outcome) else outcome

    def _verdict(self) -> Tried[Literal["answer", "again"] | None]:
        """Who is to blame: "answer"; "again" where what came of it when it was tried again counts; None
        where nobody knows.
        """
        judged = self.batch.judged
        slow = self.place.why.code == "deadline"  # what ran out of time would do so again
        if not slow:
            verdict = yield from self._same_again()
            if verdict != "answer":
                return verdict
        # neighbours with scores are controls themselves
        times = 1 if self.place.others else TRIALS
        if self.controls:
            if not (yield from self._controls_are_scored(times)):
                return None
            # an outage may have lasted as long as the trials
            is_over = not slow and not judged and (yield from self._tried()).ok
            return "again" if is_over else "answer"
        texts = self.texts
        if not judged and len(texts) == 1:  # the reference
            if not (yield from self._tried(texts[0])).ok:
                return None
            texts = not_the_reference(texts[0])
        for text in texts:
            if (yield from self._tried(text)).ok:
                for _ in range((1 if slow else times) - 1):
                    if not (yield from self._tried(text)).ok:
                        return None
                return "answer"
        return None

    def _same_again(self) -> Tried[Literal["answer", "again"] | None]:
        """What comes of the same answer, tried until it failed too often for chance: then "answer"."""
        batch, losses = self.batch, self.batch.losses
        readable = tried = 0
        while tried < TRIALS - 1 or not readable:
            if tried >= TRIALS - 1:
                # what the whole batch lost is known now
                if losses.failures == math.inf:
                    return None
                if tried + 1 >= losses.failures:
                    return "answer"
            outcome = yield from self._tried()
            if not outcome.ok and not batch.may_be_its_doing(outcome):
                return None
            if not tried:
                losses.lost += outcome.ok
            tried += 1
            readable += outcome.ok
            if readable and (not batch.judged or losses.often_silent):
                return "again"
        # A judge's verdict counts where it can be read every time: else an answer that silences a judge
        # who would give it a low score is asked about until one pleases.
        return "again" if readable == TRIALS - 1 else None

    def _controls_are_scored(self, times: int) -> Tried[bool]:
        """Whether so many controls get a score, and no more are lost than is chance."""
        scored = lost = 0
        for control in cycle(self.controls):
            ok = (yield from self._tried(control)).ok
            scored, lost = scored + ok, lost + (not ok)
            if scored == times or lost > self.batch.losses.losses:
                break
        return scored == times
