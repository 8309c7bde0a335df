"""What holds for one reward holds for every kind, at every door, for every way to give no score and
on every side.

The products are made by discovery: kinds from the classes of the library, doors from one table that
is compared with what there is. `KNOWN` lists the products that do not hold yet; one that holds has
to be removed from it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import rm_gallery
from rm_gallery import (
    BaseGrader,
    BaseReward,
    ConfigError,
    DataSample,
    GradingRunner,
    RewardRegistry,
    RunOptions,
    Score,
    integrations,
)
from rm_gallery.core.reward.function import class_of_built
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.utils.errors import Cause
from rm_gallery.integrations.scoring import RowScorer
from tests.cli.test_every_command import COMMANDS
from tests.contracts.doors import CLI, DOORS, METHODS, RUNNER, Ask, Read, read
from tests.contracts.kinds import BREAK, KINDS, SOUND, WAYS, sample_with, ways_of
from tests.gallery import registry_cases
from tests.integrations.adapters import ADAPTERS
from tests.integrations.packages import installed
from tests.support.choice import covering
from tests.support.reward_server import RewardServer
from tests.support.samples import make_sample

AT_ONCE = (
    "listwise",
    "batch-function",
    "batch-function-async",
    "batch-rule",
    "weighted-sum-of-lists",
    "environment-group",
    "grader-list",
)
OF_ALL_ALIKE = (
    *("listwise", "pairwise", "grader-list", "batch-function", "batch-function-async"),
    "batch-rule",
)
"""Kinds of which nobody can tell whose doing it is that a comparison gave no score."""
KNOWN: dict[str, str] = {
    **{
        f"neighbours of the blamed/{kind}/answers-fault": "an answer that a reward itself calls impossible costs all of them the score"
        for kind in AT_ONCE
    },
    "neighbours of the blamed/environment-group/None": "an environment that returns None for a group does not say whose doing it is",
    **{
        f"neighbours/{kind}/answers-fault": "all answers have the worst score where one made the call impossible"
        for kind in ("weighted-sum-of-lists", "environment-group")
    },
    **{
        f"outcome/{kind}/answers-fault": "an answer that made itself impossible to compare has no score instead of the worst"
        for kind in OF_ALL_ALIKE
    },
    "outcome/environment*/None": "an environment that returns None is a fault of the data, for other kinds of the rule",
    **{
        f"door/{door}/{kind}/{way}": "a GraderRank has no place for an answer without a score: its neighbours lose theirs"
        for door in RUNNER
        for kind, ways in (
            ("pairwise", ways_of("pairwise")),
            ("judged-pairwise", ways_of("judged-pairwise")),
            ("batch-function", ["out-of-range"]),
            ("batch-function-async", ["out-of-range"]),
            ("batch-rule", ["out-of-range", "NaN", "infinite"]),
            ("environment-group", ["NaN", "infinite"]),
        )
        for way in ways
    },
    **{
        f"door/benchmax.*/{kind}/answers-fault": "the worst score where evaluate gives none, as under outcome/"
        for kind in OF_ALL_ALIKE
    },
}
"""Products that do not hold yet (patterns of their names), and why."""


def settle(found: Mapping[str, str]) -> None:
    """Fail for each product that does not hold and is not in KNOWN, and for each that is there and
    holds.

    `found` says of each product what is wrong with it, nothing where it holds.
    """
    known = {name for name in found if any(fnmatchcase(name, pattern) for pattern in KNOWN)}
    wrong = [
        f"{name}: {problem}" for name, problem in found.items() if problem and name not in known
    ]
    mended = [f"{name}: holds now, remove it from KNOWN" for name in known if not found[name]]
    assert not wrong + mended, "\n".join(wrong + mended)


def test_every_known_fault_names_a_product() -> None:
    names = [
        f"{promise}/{kind}/{way}" for promise in PROMISES for kind in KINDS for way in ways_of(kind)
    ]
    names += [
        f"door/{door}/{kind}/{way}" for door in DOORS for kind in KINDS for way in ways_of(kind)
    ]
    names += [
        f"reference/{name}/{reading}" for name in RewardRegistry.list() for reading in READINGS
    ]
    for pattern in KNOWN:
        assert any(fnmatchcase(name, pattern) for name in names), (
            f"no product has the name {pattern}"
        )


# -- kinds × ways × sides --------------------------------------------------------------------------

PROMISES = ("outcome", "neighbours", "sides", "blame", "neighbours of the blamed")
SIDES = {"first": 0, "middle": 1, "last": len(SOUND)}


@cache
def reward_of(kind: str) -> BaseReward:
    """The reward of a kind, with a worst score that every door may give."""
    made: BaseReward = KINDS[kind].make().model_copy(update={"worst": 0.0})
    return made


def broken(way: str, side: str) -> DataSample:
    """Three sound answers, and a broken one on this side of them."""
    place = SIDES[side]
    return sample_with(*SOUND[:place], BREAK + way, *SOUND[place:], unique_id=f"{way} {side}")


Judged = dict[str, Score[float]]
"""What was said of each answer, by its text."""


@cache
def judged(kind: str, blame: str) -> dict[str, Judged]:
    """All broken samples of a kind in one batch, between two sound ones."""
    reward = reward_of(kind)
    sound = [sample_with(*SOUND, unique_id=name) for name in ("before", "after")]
    given = [sound[0], *(broken(way, side) for way in ways_of(kind) for side in SIDES), sound[1]]
    done = reward.evaluate_batch(given, options=RunOptions(blame=blame, progress=False))  # type: ignore[arg-type]
    return {
        s.unique_id: {
            output.answer.text: replace(said_of(reward, output), extra={}) for output in s.output
        }
        for s in done
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_missing_score_has_a_cause_and_a_message_and_costs_no_neighbour(kind: str) -> None:
    found, wrong = judged(kind, "off"), {}
    sound = found["before"]
    assert found["after"] == sound and all(one.value is not None for one in sound.values())
    for way in ways_of(kind):
        cases = [found[f"{way} {side}"] for side in SIDES]
        wrong[f"outcome/{kind}/{way}"] = _not_its_own(
            reward_of(kind), way, [case[BREAK + way] for case in cases]
        )
        wrong[f"neighbours/{kind}/{way}"] = _not_kept(sound, cases, at_once(kind))
        codes = [
            {text: (one.value, one.status, one.cause, one.code) for text, one in case.items()}
            for case in cases
        ]
        wrong[f"sides/{kind}/{way}"] = (
            "" if codes[1:] == codes[:-1] else f"depends on the side: {codes}"
        )
    settle(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_who_breaks_a_reward_is_blamed_for_what_is_its_own_doing_alone(kind: str) -> None:
    """Where scores train: nobody who serves, and no row, becomes the answer's fault; and no
    neighbour pays.
    """
    found, wrong = judged(kind, "probe"), {}
    sound = found["before"]
    for way in ways_of(kind):
        cases = [found[f"{way} {side}"] for side in SIDES]
        own = [case[BREAK + way] for case in cases]
        spared = WAYS[way].cause in ("endpoint", "data")
        blamed = [
            one for one in own if one.value is not None and one.value != reward_of(kind).worst_score
        ]
        wrong[f"blame/{kind}/{way}"] = (
            f"a score that nobody gave: {blamed}"
            if blamed
            else f"not the answer's doing: {own}"
            if spared and any(one.value is not None for one in own)
            else ""
        )
        wrong[f"neighbours of the blamed/{kind}/{way}"] = _not_kept(
            sound, cases, spared and at_once(kind)
        )
    settle(wrong)


def _not_its_own(reward: BaseReward, way: str, said: list[Score[float]]) -> str:
    """What is wrong with the outcomes of a broken answer."""
    cause = WAYS[way].cause
    for one in said:
        if cause == "answer":
            if one.value != reward.worst_score:
                return f"the answer's own doing is worth the worst score: {one}"
        elif one.value is not None:
            return f"a score that nobody gave: {one}"
        elif one.cause not in get_args(Cause) or not one.reason or not one.code:
            return f"no cause, reason or message: {one}"
        elif one.cause != cause:
            return f"caused by {cause}, found {one.cause} ({one.reason})"
    return ""


def at_once(kind: str) -> bool:
    """Whether one call judges all answers to a prompt, so that nobody knows whose doing it is when
    it breaks.
    """
    return reward_of(kind).kind == "listwise"


def _not_kept(sound: Judged, cases: list[Judged], may_be_missing: bool) -> str:
    """Which neighbours have not the scores they have without the broken answer; where they may be
    missing, all of them are.
    """
    scores = {text: one.value for text, one in sound.items()}
    for case in cases:
        beside = {text: case[text] for text in scores}
        given = {text: one.value for text, one in beside.items()}
        if given != scores and not (
            may_be_missing and all(one.value is None and one.reason for one in beside.values())
        ):
            return (
                f"neighbours have {list(given.values())}, without the broken answer "
                f"{list(scores.values())}"
            )
    return ""


def test_every_cause_occurs() -> None:
    said = {
        cause
        for kind in KINDS
        for case in judged(kind, "off").values()
        for cause in (one.cause for one in case.values())
    }
    assert {way.cause for way in WAYS.values()} | {"caller"} == set(get_args(Cause))
    # who breaks a reward has a score, and stopping is below
    assert said >= set(get_args(Cause)) - {"caller", "answer"}


# -- kinds × doors × ways --------------------------------------------------------------------------


def registered(kind: str) -> str:
    return f"sibling_{kind.replace('-', '_')}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of all kinds, which have names as well."""
    with pytest.MonkeyPatch.context() as patched, installed():
        patched.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))
        for kind in KINDS:
            RewardRegistry.register(registered(kind), class_of_built(reward_of(kind)))
        with RewardServer({registered(kind): reward_of(kind) for kind in KINDS}) as server:
            yield server.url


def asked(kind: str) -> list[DataSample]:
    """A sample for each way, between two sound ones of as many answers."""
    sound = [
        sample_with(*SOUND, "one two three four", unique_id=name) for name in ("before", "after")
    ]
    return [sound[0], *(broken(way, "middle") for way in ways_of(kind)), sound[1]]


@cache
def wanted(kind: str, blame: str) -> list[Read]:
    reward = reward_of(kind)
    done = reward.evaluate_batch(asked(kind), options=RunOptions(blame=blame, progress=False))  # type: ignore[arg-type]
    return [read(reward, sample) for sample in done]


def differs(given: Read, want: Read) -> str:
    """What a door says else than `evaluate_batch`, as far as it has words for it."""
    causes = want.causes
    if isinstance(given.causes, frozenset):
        causes = frozenset(want.causes or ()) - {None}
    if repr(given.scores) != repr(want.scores) or (
        given.causes is not None and given.causes != causes
    ):
        return f"{given.scores} {given.causes or ''}, evaluate_batch says {want.scores} {causes}"
    return ""


def family(kind: str) -> str:
    """What doors tell apart: some take none that compares, some none that judges steps."""
    reward = reward_of(kind)
    return "compares" if reward.compares else reward.kind if reward.kind == "stepwise" else "alone"


@pytest.mark.parametrize(
    ("name", "kind"),
    covering(
        product(DOORS, KINDS),
        lambda name, kind: (name, family(kind)),
        lambda name, kind: (kind, DOORS[name][1:]),
    ),
)
def test_a_sample_has_the_same_score_and_cause_through_every_door(
    name: str, kind: str, url: str, tmp_path: Path
) -> None:
    door, reward, samples = DOORS[name], reward_of(kind), asked(kind)
    ask = Ask(reward, registered(kind), samples, tmp_path, url)
    if reward.kind == "stepwise" and not door.steps:
        with pytest.raises(ConfigError, match="is stepwise and .* name a pointwise one"):
            door.call(ask)
        return
    if reward.compares and not door.groups:
        with pytest.raises(ConfigError, match="compares"):
            door.call(ask)
        return
    pairs = zip(samples, door.call(ask), wanted(kind, door.blame), strict=True)
    settle(
        {
            f"door/{name}/{kind}/{sample.unique_id.split()[0]}": differs(given, want)
            for sample, given, want in pairs
        }
    )


# -- both sides of a comparison are read alike -----------------------------------------------------

READINGS: dict[str, Callable[[str], str]] = {
    "CRLF": lambda text: text.replace("\n", "\r\n") + "\r\n",
    "BOM": lambda text: "\ufeff" + text,
    "spaces": lambda text: f"  {text} \n",
    "turn-end": lambda text: text + "<|im_end|>",
    "turn-end-of-llama": lambda text: text + "<|eot_id|>",
    "zero-width": lambda text: text + "\u200b",
    "no-break-space": lambda text: text.replace(" ", "\u00a0"),
    "fullwidth-digits": lambda text: text.translate({ord("0") + n: 0xFF10 + n for n in range(10)}),
    "minus-sign": lambda text: text.replace("-", "\u2212"),
}
"""The same text, as other programs write it."""


def _has_reference(name: str) -> bool:
    example = registry_cases.example_of(name)
    return example.judge is None and isinstance(
        (example.sample.metadata or {}).get("reference"), str
    )


@pytest.mark.parametrize("name", [name for name in RewardRegistry.list() if _has_reference(name)])
def test_a_reference_is_read_as_an_answer_is(name: str) -> None:
    """What costs an answer nothing costs nothing in the reference."""
    reward = registry_cases.create(name)
    if reason := registry_cases.missing(reward):
        pytest.skip(reason)
    sample = registry_cases.example_of(name).sample
    reference = str((sample.metadata or {})["reference"])
    query, texts, wrong = sample.query_text(), [output.answer.text for output in sample.output], {}

    def scores_with(answers: list[str], against: str) -> list[float | None]:
        metadata = {**(sample.metadata or {}), "reference": against}
        done = reward.evaluate(make_sample(*answers, query=query, metadata=metadata))
        return [said_of(reward, output).value for output in done.output]

    plain = scores_with(texts, reference)
    for reading, written in READINGS.items():
        if (
            written(reference) != reference
            and scores_with([written(text) for text in texts], reference) == plain
        ):
            other = scores_with(texts, written(reference))
            wrong[f"reference/{name}/{reading}"] = (
                "" if other == plain else f"{plain}, but {other} against {written(reference)!r}"
            )
    settle(wrong)


# -- by discovery ----------------------------------------------------------------------------------

OTHER_CLASSES = {
    "PerOutputReward": "the base of compositions and environments",
    "Composition": "the base of compositions",
    "BaseLLMReward": "a scorer, not a kind: the judged kinds are made of it",
    "BaseRubricReward": "a judge with a rubric: the judged kinds with a prompt of its own",
    "BasePointWiseRubricReward": "as above",
    "BaseListWiseRubricReward": "as above",
    "BasePairWiseRubricReward": "as above",
    "BaseStepWiseRubricReward": "as above",
    "BaseTrajectoryRubricReward": "as above",
    "RuleReward": "the base of rules, which are pointwise",
    "KillableRule": "as above, in a process that can be killed",
    "AbstractGrader": "the base of graders",
    "RowReward": "graders over rows of named fields; their doors are asked as doors of graders",
}
OTHER_COMMANDS = {
    "bench": "`eval` with a named benchmark",
    "audit": "asks about changed answers, for counts of its own",
    "check-reward": "as audit",
    "conflicts": "as audit",
    "serve": "the HTTP server, asked by its client",
    "grade": "the GradingRunner over the rows of a file",
    "judge-select": "compares judges on labels",
    "drift": "compares judges on anchors",
    "rejudge": "reads logs; tests/report/test_rejudge.py compares its scores with those of `evaluate`",
}
OTHER_FUNCTIONS = {
    "audit": "asks about changed answers, for counts of its own",
    "check_reward": "as audit",
    "conflicts": "as audit",
    "fuzz_reward": "as audit",
    "environment_reward": "makes a reward",
}
OTHER_ADAPTERS = {
    "causes.given": "a row of the table in the docs",
    "causes.table": "that table",
    "harbor.write_harbor_reward": "writes what RowScorer gives to files, once",
    "nemo_rl.EnvironmentReturn": "what a step gives",
    "scoring.scored_of": "reads a scored sample",
    "scoring.pays_turns": "says what a reward is",
    "scoring.RowScorer": "below all adapters, a door of its own",
    "scoring.TrainerReward": "below all adapters",
    "trl.trl_components": "one function per component, of the same scores",
    "trl_data.preference_rows": "makes a data set of scored samples",
    "trl_data.unpaired_rows": "as above",
    "trl_data.step_rows": "as above",
    "verifiers.verifiers_rubric": "a rubric of verifiers_reward",
    "verl.verl_overrides": "names verl_reward in a config",
}


def _modules(*without: str) -> Iterator[ModuleType]:
    """Every module of the library that can be imported here."""
    for found in pkgutil.walk_packages(rm_gallery.__path__, "rm_gallery."):
        if not found.name.startswith(without):
            try:
                yield importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                continue


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _parameters(function: object) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)  # type: ignore[arg-type]  # what is no callable raises
    except (TypeError, ValueError):
        return set()


def test_every_class_of_rewards_has_a_kind_here() -> None:
    assert list(_modules("rm_gallery.gallery", "rm_gallery.__main__"))
    own = {
        c
        for c in _subclasses(BaseReward)
        if c.__module__.startswith(("rm_gallery.core", "rm_gallery.envs", "rm_gallery.train"))
    }
    named = {c for c in own if not c.__name__.startswith("_") and "<locals>" not in c.__qualname__}
    # all graders score samples in the way of FunctionGrader
    named -= {c for c in named if issubclass(c, BaseGrader)}
    covered = {c for kind in KINDS.values() for c in kind.covers}
    made = {c for c in named if getattr(sys.modules[c.__module__], c.__name__, None) is c}
    absent = sorted(c.__name__ for c in made - covered if c.__name__ not in OTHER_CLASSES)
    assert not absent, (
        f"add a kind to tests/contracts/kinds.py, or why there is none to OTHER_CLASSES: {absent}"
    )


def test_every_method_that_takes_samples_is_a_door() -> None:
    for owner, takes, doors in (
        (BaseReward, {"sample", "samples"}, METHODS),
        (
            GradingRunner,
            {"dataset"},
            {name.partition(".")[2]: door for name, door in RUNNER.items()},
        ),
    ):
        beside = {"plan", "jobs", "merge", "everywhere", "view"}  # what kinds implement
        public = {
            n
            for n, f in vars(owner).items()
            if not n.startswith("_") and n not in beside and _parameters(f) & takes
            # the others are further names of a door
            if getattr(f, "__name__", n) == n
        }
        assert public == set(doors), f"add to tests/contracts/doors.py: {public ^ set(doors)}"
    rows = {
        n
        for n, f in vars(RowScorer).items()
        if not n.startswith("_") and "completions" in _parameters(f)
    }
    assert {f"RowScorer.{name}" for name in rows} == {
        name for name in DOORS if name.startswith("RowScorer.")
    }


def test_every_command_and_function_that_takes_a_reward_is_a_door() -> None:
    commands = {
        n
        for n, c in COMMANDS.items()
        if {p.name for p in c.params} & {"reward", "rewards", "config"}
    }
    absent = sorted(commands - set(CLI) - set(OTHER_COMMANDS))
    assert not absent, (
        f"add to CLI in tests/contracts/doors.py, or why not to OTHER_COMMANDS: {absent}"
    )
    face = {name for name in rm_gallery.__all__ if inspect.isfunction(getattr(rm_gallery, name))}
    takes = {
        name for name in face if _parameters(getattr(rm_gallery, name)) & {"reward", "rewards"}
    }
    absent = sorted(
        name for name in takes - set(OTHER_FUNCTIONS) if f"rm_gallery.{name}" not in DOORS
    )
    assert not absent, f"add to tests/contracts/doors.py, or why not to OTHER_FUNCTIONS: {absent}"


def test_every_adapter_is_a_door() -> None:
    known: set[str] = {name.partition("-")[0] for name in ADAPTERS} | set(OTHER_ADAPTERS)
    absent: list[str] = []
    for module in pkgutil.iter_modules(integrations.__path__):
        held = importlib.import_module(f"{integrations.__name__}.{module.name}")
        for name, given in vars(held).items():
            own = not name.startswith("_") and getattr(given, "__module__", "") == held.__name__
            # the class that such a function makes is called through it
            made = inspect.isclass(given) and module.name in {
                adapter.partition(".")[0] for adapter in ADAPTERS
            }
            if (
                own
                and not made
                and _parameters(given) & {"reward", "rewards"}
                and f"{module.name}.{name}" not in known
            ):
                absent.append(f"{module.name}.{name}")
    assert not absent, (
        f"add to the table in tests/integrations/adapters.py, or why not to OTHER_ADAPTERS: "
        f"{absent}"
    )
