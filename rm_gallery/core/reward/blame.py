"""Which answer made itself, or its group, impossible to judge: tried out with control answers, for
every kind of reward.

A judge that cannot be read and code that raises do not say whether the answer made them. The same
is tried again, and then with a neutral answer in its place. An answer is to blame where it fails
`TRIALS` times in all and neutral answers get a score; then it has the worst score of the range.
Where a whole group has no score, each of its answers is tried among neutral ones, and the rest is
judged without those that fail: nobody pays for a neighbour.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import detached_options
from rm_gallery.core.model.call import trouble_at
from rm_gallery.core.reward.judges import asks_a_model, models_of
from rm_gallery.core.reward.outputs import (
    DEADLINE_SHARE,
    PLAIN,
    may_be_the_answers_doing,
    neutral,
    not_the_reference,
    said_of,
    said_of_step,
    stand_in,
    write_scores,
)
from rm_gallery.core.score import Score
from rm_gallery.core.utils.models import copy_with

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import Progress, RunOptions
    from rm_gallery.core.reward.abstract import AbstractReward

TRIALS = 3
"""How often the same answer has to fail, and neutral ones have to get a score, before the answer is
to blame.

A judge that is unreadable at random for 4 % of the answers (20 % of its replies, each asked for
twice) then blames 6 of 100,000 honest answers; with one control answer it blamed 4,000."""
_REPEATS = 1 << 20
"""Trials are cached apart from runs: their replies are those of other repeats."""

Trials = Generator[list[DataSample], list[DataSample], None]
"""Yields samples to judge and is sent them judged; writes what it finds out to the outputs it is
about.
"""


Attempts = Generator["str | None", Score[Any], 'Literal["answer", "again"] | None']


class SecondLook:
    """The trials for all of these samples' outputs that have no score and may have caused that
    themselves, in rounds.

    While there is anything `asked`, the caller judges it with the options of `probing` and hands it
    to `take`.
    """

    def __init__(self, reward: AbstractReward, samples: Iterable[DataSample]) -> None:
        """Find out what is to be tried; nothing is judged here."""
        self._reward, self._round, self._going = reward, 0, list[tuple[Trials, list[DataSample]]]()
        self._about: list[DataSample] = []
        # time and load are no answer's doing: nothing is tried out on an endpoint in trouble
        if any(map(trouble_at, models_of(reward))):
            samples = ()
        for sample in samples:
            trials = _trials(reward, sample)
            first = next(trials, None)
            if first is not None:
                self._about.append(sample)
                self._going.append((trials, first))
        self._before = [self._scores_of(sample) for sample in self._about]

    def _scores_of(self, sample: DataSample) -> list[Score[float]]:
        return [said_of(self._reward, output) for output in sample.output]

    @property
    def asked(self) -> list[DataSample]:
        """What is to be judged now; empty when all is settled."""
        return [sample for _, trials in self._going for sample in trials]

    def probing(self, options: RunOptions) -> RunOptions:
        """The options of this round: it keeps nothing, asks anew, and a trial may take a quarter of
        the deadline.
        """
        seconds = options.deadline or self._reward.deadline
        deadline = None if seconds is None else DEADLINE_SHARE * seconds
        self._round += 1
        # the cache would give the same unreadable reply again
        repeat = options.repeat + self._round * _REPEATS
        return detached_options(
            options,
            control=RunControl(quiet=True),
            deadline=deadline,
            blame="off",
            total=None,
            repeat=repeat,
        )

    def take(self, judged: Sequence[DataSample], progress: Progress | None = None) -> None:
        """Go on with what was `asked`, judged; after the last round samples are counted by what
        they have then.
        """
        results, going = iter(judged), []
        for trials, asked in self._going:
            try:
                going.append((trials, trials.send([next(results) for _ in asked])))
            except StopIteration:
                continue
        self._going = going
        if not going and progress is not None:
            for sample, before in zip(self._about, self._before, strict=True):
                if (after := self._scores_of(sample)) != before:
                    progress.count(before, -1)
                    progress.count(after)


def _trials(reward: AbstractReward, sample: DataSample) -> Trials:
    places = list(_without_score(reward, sample))
    if not places:
        return
    if not reward.compares or len(sample.output) == 1:
        yield from _at_once([_one(reward, place) for place in places])
        return
    scored = [
        i for i, output in enumerate(sample.output) if reward.score_of_output(output) is not None
    ]
    if scored:
        yield from _at_once(
            [
                _one(reward, place._replace(others=_others(reward, place, scored)))
                for place in places
            ]
        )
    else:
        yield from _group(reward, sample, places)


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
    def written_to(self) -> Step:
        output = self.sample.output[self.at]
        return output.answer if self.step is None else output.turns[self.step]

    def trial(self, text: str | None = None) -> DataSample:
        """The sample to judge: the answer itself, or this text in its place, among the others. A
        step is tried by itself.
        """
        output = self.sample.output[self.at]
        if text is not None:
            output = stand_in(text, output)
        if self.step is not None:
            step = self.written_to
            if text is not None:
                # a call may be what breaks the judge, and is no part of a neutral turn
                step = copy_with(step, content=text, tool_calls=None)
            output = DataOutput(answer=step)
        shown = {**self.others, self.at: output}
        return copy_with(self.sample, output=[shown[i] for i in sorted(shown)])

    def judged(self, reward: AbstractReward, trial: DataSample) -> Score[float]:
        """What became of the answer in a trial."""
        output = trial.output[sorted({*self.others, self.at}).index(self.at)]
        return said_of(reward, output) if self.step is None else said_of_step(reward, output.answer)

    def blame(self, reward: AbstractReward) -> None:
        """Write that the answer caused it."""
        why = (
            f"The answer made it impossible to judge; another answer could be judged. "
            f"{self.why.reason}"
        )
        write_scores(
            reward,
            self.written_to,
            Score(None, why, status=self.why.status, cause="answer", code=self.why.code),
        )


def _without_score(reward: AbstractReward, sample: DataSample) -> Iterable[_Place]:
    """The places without a score that may be their answers' own doing."""
    if reward.finds_blame_in_parts:
        return
    judged = asks_a_model(reward)
    for at, output in enumerate(sample.output):
        if reward.kind == "stepwise":
            for number, step in enumerate(output.turns):
                if step.reward.issues and may_be_the_answers_doing(
                    judged, why := said_of_step(reward, step)
                ):
                    yield _Place(sample, at, why, number)
        elif output.answer.reward.issues and may_be_the_answers_doing(
            judged, why := said_of(reward, output)
        ):
            yield _Place(sample, at, why)


def _others(reward: AbstractReward, place: _Place, scored: Sequence[int]) -> dict[int, DataOutput]:
    """What an answer is tried among whose neighbours have scores: the best of them for pairs, else
    the whole group.

    The best, since an answer may break its judge just where it would lose.
    """
    outputs = place.sample.output
    if reward.trial_size is not None:
        sign = 1.0 if reward.higher_is_better else -1.0
        ranked = sorted(
            scored, key=lambda i: sign * (reward.score_of_output(outputs[i]) or 0.0), reverse=True
        )
        return {i: outputs[i] for i in ranked[: reward.trial_size - 1]}
    text = _controls(reward, place)[0]
    return {
        i: output if i in scored else stand_in(text, output)
        for i, output in enumerate(outputs)
        if i != place.at
    }


def _controls(reward: AbstractReward, place: _Place) -> list[str]:
    """The texts of which one has to get a score in the answer's place."""
    reference = copy_with(place.sample, output=[place.sample.output[place.at]]).reference()
    judged = asks_a_model(reward)
    texts = neutral(judged, reference)
    # a composition with a judge may hold rules as well, which read numbers alone
    return (
        list(dict.fromkeys([*texts, *neutral(False, reference)]))
        if judged and reward.made_of_parts
        else texts
    )


def attempts(judged: bool, why: Score[Any], texts: Sequence[str], times: int = TRIALS) -> Attempts:
    """What is tried to find out about an answer of which there is no score for this reason; rewards
    and graders take it alike.

    Yields None for the same answer, a text for that in its place, and is sent what became of it.
    Returns "answer" where the answer is to blame, "again" where what came of it when it was tried
    again first counts, None where nobody knows.
    """
    readable = 0
    slow = why.code == "deadline"  # what ran out of time would do so again
    for _ in range(0 if slow else TRIALS - 1):
        outcome = yield None
        if not outcome.ok and not may_be_the_answers_doing(judged, outcome):
            return None
        readable += outcome.ok
        if readable and not judged:
            return "again"
    if readable:
        # A judge's verdict counts where it can be read every time: else an answer that silences a
        # judge who would give it a low score is asked about until one pleases.
        return "again" if readable == TRIALS - 1 else None
    if not judged and len(texts) == 1:  # the reference
        if not (yield texts[0]).ok:
            return None
        texts = not_the_reference(texts[0])
    for text in texts:
        if (yield text).ok:
            for _ in range((1 if slow else times) - 1):
                if not (yield text).ok:
                    return None
            return "answer"
    return None


def _one(reward: AbstractReward, place: _Place) -> Trials:
    """Try one answer: the same again, then neutral ones."""
    # neighbours with scores are controls themselves
    times = 1 if place.others else TRIALS
    trying = attempts(asks_a_model(reward), place.why, _controls(reward, place), times)
    again: DataSample | None = None
    try:
        text = next(trying)
        while True:
            trial = (yield [place.trial(text)])[0]
            again = again or trial
            text = trying.send(place.judged(reward, trial))
    except StopIteration as end:
        verdict = end.value
    if verdict == "answer":
        place.blame(reward)
    elif verdict == "again" and again is not None and place.step is None:
        # a pair, or a step by itself, is not judged as it is in its whole
        if not reward.compares or len(again.output) == len(place.sample.output):
            _adopt(place.sample, [place.at], again, sorted({*place.others, place.at}))


def _adopt(
    sample: DataSample, places: Iterable[int], judged: DataSample, shown: Sequence[int]
) -> None:
    """Take these outputs' rewards from a judged sample that shows the outputs `shown`."""
    for place in places:
        output = judged.output[shown.index(place)]
        sample.output[place].answer.reward = output.answer.reward


def _group(reward: AbstractReward, sample: DataSample, places: Sequence[_Place]) -> Trials:
    """Find who breaks a group of which nobody has a score: each by itself among neutral answers,
    and judge the rest without it.

    A group of n costs n + 5 judgements where one breaks it always, 2n + 5 where one breaks it
    beside good answers alone, and two where it broke by chance.
    """
    slow = any(place.why.code == "deadline" for place in places)
    if not slow and not (yield from _fails_again(reward, sample)):
        return
    if (text := (yield from _control(reward, places[0]))) is None:
        return
    trials = [place._replace(others=_neutral_others(reward, place, text)) for place in places]
    done = yield [trial.trial() for trial in trials]
    outcomes = [trial.judged(reward, one) for trial, one in zip(trials, done, strict=True)]
    judged = asks_a_model(reward)
    if not all(outcome.ok or may_be_the_answers_doing(judged, outcome) for outcome in outcomes):
        return
    breakers = [trial for trial, outcome in zip(trials, outcomes, strict=True) if not outcome.ok]
    if not breakers:
        yield from _leave_one_out(reward, sample, places, text)
        return
    if len(breakers) == len(places) or not judged:
        # none of the others is a control, or each may equal the reference: does another neutral
        # answer get a score? a judge that is shown equal answers may have nothing to tell apart
        others = [PLAIN[0]] if judged else not_the_reference(text)
        if not (yield from _gets_scores(reward, breakers[0], others)):
            return
    for place in breakers:
        place.blame(reward)
    broken = {place.at for place in breakers}
    rest = [place.at for place in places if place.at not in broken]
    if len(rest) > 1:
        _adopt(
            sample,
            rest,
            (yield [copy_with(sample, output=[sample.output[i] for i in rest])])[0],
            rest,
        )
    elif rest:
        last, one = next(
            (trial, one) for trial, one in zip(trials, done, strict=True) if trial.at == rest[0]
        )
        _adopt(sample, rest, one, sorted({*last.others, last.at}))


def _gets_scores(
    reward: AbstractReward, place: _Place, texts: Sequence[str]
) -> Generator[list[DataSample], list[DataSample], bool]:
    """Whether one of these texts gets a score in the answer's place, as often as it is tried."""
    for text in texts:
        for trial in range(TRIALS):
            if not place.judged(reward, (yield [place.trial(text)])[0]).ok:
                break
            if trial == TRIALS - 1:
                return True
    return False


def _fails_again(
    reward: AbstractReward, sample: DataSample
) -> Generator[list[DataSample], list[DataSample], bool]:
    """Whether nobody of the group gets a score when it is judged again either; what chance broke is
    mended, as in `_one`.
    """
    judged, everyone = asks_a_model(reward), list(range(len(sample.output)))

    def can_be_judged(one: DataSample) -> bool:
        return any(reward.score_of_output(output) is not None for output in one.output)

    again = yield [copy_with(sample)]
    if not can_be_judged(again[0]):
        return any(
            may_be_the_answers_doing(judged, said_of(reward, output)) for output in again[0].output
        )
    if judged:
        again = [*again, *(yield [copy_with(sample)])]
    if all(map(can_be_judged, again)):
        _adopt(sample, everyone, again[0], everyone)
    return False


def _control(
    reward: AbstractReward, place: _Place
) -> Generator[list[DataSample], list[DataSample], str | None]:
    """A text that gets a score in a group of its like; for a judge, who can read any, it need not
    be tried.
    """
    texts = _controls(reward, place)
    if len(texts) == 1:
        return texts[0]
    for text in texts:
        trial = place._replace(others=_neutral_others(reward, place, text))
        if trial.judged(reward, (yield [trial.trial(text)])[0]).ok:
            return text
    return None


def _neutral_others(reward: AbstractReward, place: _Place, text: str) -> dict[int, DataOutput]:
    """Neutral answers in the places of as many others as a trial takes."""
    others = [i for i in range(len(place.sample.output)) if i != place.at]
    chosen = others if reward.trial_size is None else others[: reward.trial_size - 1]
    return {i: stand_in(text, place.sample.output[i]) for i in chosen}


def _leave_one_out(
    reward: AbstractReward, sample: DataSample, places: Sequence[_Place], text: str
) -> Trials:
    """Find who breaks its group only beside the others: without it the group can be judged, and
    without any other it cannot.
    """
    if reward.trial_size is not None or len(places) < 3:
        return
    asked = []
    for place in places:
        shown = [
            stand_in(text, output) if i == place.at else output
            for i, output in enumerate(sample.output)
        ]
        asked.append(copy_with(sample, output=shown))
    judged = yield asked
    able = [
        (place, one)
        for place, one in zip(places, judged, strict=True)
        if any(reward.score_of_output(output) is not None for output in one.output)
    ]
    if len(able) != 1:
        return
    [(place, without)] = able
    place.blame(reward)
    everyone = list(range(len(sample.output)))
    _adopt(sample, [i for i in everyone if i != place.at], without, everyone)
