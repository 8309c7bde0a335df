"""Whether a reward can be trusted: `rm-gallery audit`, `check-reward`, `conflicts`, `drift`,
`judge-select` and `watch`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.judge import read_config, rows_file, runner_of
from rm_gallery.core.utils.defaults import CHECK_CEILING, FUZZ_PASS, PROBES
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    from rm_gallery.study.canaries import CanaryCheck
    from rm_gallery.study.check import RewardCheck
    from rm_gallery.study.drift import Anchors
    from rm_gallery.study.fuzz import Fuzzed

C = TypeVar("C", "RewardCheck", "CanaryCheck", "Fuzzed")


@opt.grouped()
def audit(
    reward: opt.Reward[str],
    data: opt.Data[list[str] | None] = None,
    benchmark: opt.Benchmark = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=opt.completing(lambda: PROBES),
            help=f"Only this probe; may be repeated: {', '.join(PROBES)}.",
        ),
    ] = None,
    strict: bool = False,
    *,
    run: opt.Running,
    limit: opt.Count[int | None] = None,
    estimate: bool = False,
) -> None:
    """Change position, length, style, praise and injected commands, and print how far each moves
    REWARD, with intervals and verdicts.

    Args:
        data: Files or folders with preferences; forty built-in questions by default.
        strict: Exit 1 on a warning as well.
        limit: A seeded sample of this many prompts; 60 of data by default.
        estimate: Print what the audit would cost, without a call.
    """
    from rm_gallery.report.tables import print_findings
    from rm_gallery.study.audit import prepare

    options = run.options()
    ready = prepare(
        reward,
        opt.one_or_all(data) or None,
        benchmark,
        probes=probe or None,
        **run.task(limit),
    )
    cost = ready.cost(None if options.budget is None else options.budget.prices)
    if estimate:
        return typer.echo(orjson.dumps(vars(cost)).decode() if run.json else str(cost))
    opt.say(f"audit of {ready.reward.name}: {cost}")
    with run.resumable():
        card = ready.run(options)
    kept = [] if run.out is None else [f"card: {run.out / 'card.html'}"]
    opt.print_result(
        card,
        run.json,
        lambda card: print_findings(card.findings, [*card.about(), *kept], card.worth),
        "questions",
    )
    if not card.scored:
        opt.say("rm-gallery: no question got a verdict, so nothing is known.")
    if card.verdict == "not enough":
        opt.say("rm-gallery: not enough to tell; give more prompts, or probes that need fewer.")
    passed = ("pass",) if strict else ("pass", "warn")
    sys.exit(int(not card.scored or bool(card.stopped) or card.verdict not in passed))


@opt.grouped("out", "force_new", "trace", "on_bad_row")
def check(
    rewards: Annotated[
        list[str],
        typer.Argument(
            metavar="REWARD",
            help=f"The reward: {opt.SPELLED}. A file may hold a class with compute_reward, a @reward_function or a reward class. With weights, as in math:1 brief.py:0.2, their sum is tried.",
        ),
    ],
    cases: Path | None = None,
    reference: str | None = None,
    full: float | None = None,
    ceiling: Annotated[
        float | None,
        typer.Option(
            help=f"Share of gold's score that a completion which deserves nothing may get; {CHECK_CEILING} by default, {FUZZ_PASS} with --fuzz."
        ),
    ] = None,
    forge: bool = False,
    normalize: bool = False,
    env: Path | None = None,
    strict: bool = False,
    role: str = "main",
    fuzz: opt.Count[int | None] = None,
    *,
    run: opt.Running,
) -> None:
    """Try a reward on gold, empty, off-format, stuffed, truncated and repeated completions and your
    own, or with --fuzz on texts that are wrong for a stated reason; exit 1 on a fault.

    Args:
        cases: File of tasks: prompt, gold, completions with expect, and the data set's columns.
        reference: Column of the cases with the reference answer.
        full: Score of a completion without fault; known by default.
        forge: Try programs that solve nothing and want to pass on each case's code tests.
        normalize: Map each part of a sum to 0..1 by its range before it is weighted.
        env: File of rollouts, each marked canary: gold, floor or hacked; they are all that is
            tried, and must come in this order.
        strict: Exit 1 on notes as well.
        role: main tells right from wrong; shaping is added to one that does, so that its faults are
            notes.
        fuzz: Try this many wrong texts a case instead, such as 200; print each that is worth a
            pass.
    """
    from rm_gallery.report.tables import print_canaries, print_check, print_fuzzed
    from rm_gallery.study.canaries import check_canaries
    from rm_gallery.study.check import check_reward
    from rm_gallery.study.fuzz import fuzz_reward
    from rm_gallery.study.mix import shaping, weighted

    options = run.options()
    asked: dict[str, Any] = {"reference": reference, "options": options}
    asked |= {} if ceiling is None else {"ceiling": ceiling}
    how = {**asked, "full": full, "forge": forge}
    if role not in ("main", "shaping"):
        raise ConfigError(f"--role is {role!r:.40}; it is main or shaping.")
    parts = [weighted(reward) for reward in rewards]
    given: dict[str, Any] = {"forge": forge, "normalize": normalize}
    tried: Callable[..., Any]
    if env is not None:
        _refuse({"cases": cases, **given, "fuzz": fuzz}, "--env tries its own rollouts alone")
        tried = partial(check_canaries, canaries=env, options=options)
        raise typer.Exit(_check_each(rewards, run, strict, tried, print_canaries, _canary_faults))
    if fuzz is not None:
        _refuse(
            {**given, "full": full, "strict": strict, "role": role != "main"},
            "--fuzz tries its own texts alone",
        )
        tried = partial(fuzz_reward, cases=cases, texts=fuzz, seed=run.seed, **asked)
        raise typer.Exit(_check_each(rewards, run, strict, tried, print_fuzzed, _fuzz_faults))
    if any(weight is not None for _, weight in parts):
        raise typer.Exit(_check_mix(parts, cases, {**how, "normalize": normalize}, strict, run))
    if normalize:
        raise Inapplicable(
            "--normalize maps the parts of a sum; give rewards with weights, as in math:1 "
            "brief.py:0.2.",
            "normalize",
        )

    def tried_in_role(reward: str, **judge: Any) -> RewardCheck:
        report = check_reward(reward, cases, **how, **judge)
        return shaping(report) if role == "shaping" else report

    raise typer.Exit(_check_each(rewards, run, strict, tried_in_role, print_check, _check_faults))


def _refuse(given: Mapping[str, Any], why: str) -> None:
    """Refuse the first option that was given beside one that has no use for it."""
    for name in (name for name, value in given.items() if value not in (None, False)):
        raise Inapplicable(f"{why}; leave out --{name}.", name)


def _check_faults(check: RewardCheck) -> tuple[list[str], bool]:
    """The faults of a reward in words, and whether there is anything to note."""
    return [f"{fault.name}: {fault.what}" for fault in check.faults], bool(check.findings)


def _canary_faults(check: CanaryCheck) -> tuple[list[str], bool]:
    """The same of the rollouts whose order it breaks."""
    return [fault.line() for fault in check.of_level("fault")], bool(check.of_level("note"))


def _fuzz_faults(fuzzed: Fuzzed) -> tuple[list[str], bool]:
    """The same of the wrong texts that are worth a pass."""
    n = len(fuzzed.passed)
    return [f"{n} wrong texts are worth a pass"] if n else [], False


def _check_each(
    rewards: list[str],
    run: opt.Running,
    strict: bool,
    tried: Callable[..., C],
    shown: Callable[[C], None],
    found: Callable[[C], tuple[list[str], bool]],
) -> int:
    """Try each reward with its judge and print what came of it, beside JSON the faults on stderr;
    1 where one fails.
    """
    from rm_gallery.core.reward.resolve import judges_for

    judges, params = judges_for(rewards, run.llm, run.base_url), run.judge["params"]
    checks = [
        tried(reward, params=params, **judge) for reward, judge in zip(rewards, judges, strict=True)
    ]
    if run.json:
        opt.print_json(opt.one_or_all([report.to_dict() for report in checks]))
    failed = False
    for report in checks:
        faults, noted = found(report)
        failed |= bool(faults) or (strict and noted)
        if not run.json:
            shown(report)
        for fault in faults if run.json else ():
            opt.say(f"rm-gallery: {one_line(fault)}")
    return int(failed)


def _check_mix(
    parts: list[tuple[str, float | None]],
    cases: Path | None,
    how: dict[str, Any],
    strict: bool,
    run: opt.Running,
) -> int:
    """Try the sum of weighted rewards and each of them, say what games it and how trainers are
    given it; the exit code.
    """
    from rm_gallery.report.tables import print_check
    from rm_gallery.study.mix import check_mix

    if run.param:
        raise Inapplicable(
            "--param sets a field of one reward; write the parts of a sum into a FILE with their "
            "settings.",
            "param",
        )
    given = [(name, 1.0 if weight is None else weight) for name, weight in parts]
    report = check_mix(given, cases, **how, llm=run.llm, base_url=run.base_url)
    lines = [f"{name}: {verdict}" for name, verdict in report.through.items()]
    for name, part in report.parts.items():
        by_itself = ", ".join(finding.name for finding in part.findings) or "nothing"
        lines.append(
            f"{name} (weight {report.weights[name]:g}) by itself: {by_itself}; in the sum "
            f"{report.can_pay(name)}"
        )
    if not run.json:
        print_check(report.whole)
    opt.show(run.json, report.to_dict(), [*lines, *report.lines()])
    return int(bool(report.faults) or (strict and bool(report.whole.findings)))


@opt.grouped()
def conflicts(
    reward: opt.Reward[str],
    data: opt.Data[list[str]],
    benchmark: opt.Benchmark = None,
    *,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
) -> None:
    """Compare all pairs of each sample's answers in both orders by a listwise or pairwise REWARD;
    print contradictions, cycles, symmetry and transitivity.

    Args:
        data: Files or folders of samples with several answers.
    """
    from rm_gallery.report.tables import print_findings
    from rm_gallery.study.conflicts import conflicts as find_conflicts

    options = run.options()
    with run.resumable():
        report = find_conflicts(
            reward, opt.one_or_all(data), benchmark, options=options, **run.task(limit)
        )
    opt.print_result(
        report,
        run.json,
        lambda report: print_findings([*report.figures.values()], report.about(), report.worth),
        "samples",
    )
    if not report.n_scored:
        opt.say("rm-gallery: no sample has all its verdicts, so nothing is known about conflicts.")
    lost = report.lost.get("failed", 0) > max_failures or report.lost.get("stopped", 0)
    sys.exit(int(not report.n_scored or bool(lost)))


@opt.grouped()
def rejudge(
    reward: opt.Reward[str],
    data: opt.Data[list[str]],
    *,
    reference: str | None = None,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
) -> None:
    """Score recorded rollouts again and print the new rewards beside the recorded ones.

    Args:
        data: Logs of verifiers, NeMo-Gym, ATIF or Inspect, or dumps of messages.
        reference: Column of the right answer, where it has another name than the layout's.
    """
    from rm_gallery.report.tables import print_rejudged
    from rm_gallery.study.rejudge import rejudge as judged_again

    options = run.options()
    with run.resumable():
        report = judged_again(
            reward,
            opt.one_or_all(data),
            reference=reference,
            options=options,
            **run.task(limit),
        )
    opt.print_result(report, run.json, print_rejudged, "rollouts")
    failed = sum(one.status == "failed" for one in report.rollouts)
    sys.exit(int(not report.n_scored or failed > max_failures or report.stopped is not None))


@dataclass(frozen=True)
class AnchorColumns:
    """Which columns of a file of scores mean what: see `read_anchors`.

    Attributes:
        id: Column that names anchors.
        score: Column of scores or verdicts.
        labels: Column of people's labels, or a file with them by id.
        label_column: The labels file's column of labels, where it has several.
        cluster: Column that says which anchors belong together.
    """

    id: str = "id"
    score: str = "score"
    labels: str | None = None
    label_column: str | None = None
    cluster: str | None = None


@opt.grouped()
def drift(
    old: Path,
    new: Path,
    old_again: list[Path] | None = None,
    new_again: list[Path] | None = None,
    *,
    columns: AnchorColumns,
    bounds: tuple[float, float] | None = None,
    tolerance: Annotated[float, typer.Option(min=0.0)] = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
    json: opt.Json = False,
) -> None:
    """Compare two versions of a judge on the same anchors; exit 1 when more has changed than the
    judge's own noise explains.

    Args:
        old: The old version's run folder or file of scores, a row per anchor.
        new: The new version's, on the same anchors.
        old_again: Another run of the old version, for its own noise; may be repeated.
        new_again: Another run of the new version.
        bounds: Lowest and highest possible score; 0 1 where all lie within.
        tolerance: Scores this near count as unchanged.
        confidence: Level of the intervals.
        seed: Decides the sample, the candidate order and the bootstrap.
    """
    from rm_gallery.study.drift import compare_versions, drift_dict, drift_lines, read_anchors

    joined = columns.labels is not None and Path(columns.labels).is_file()

    def read(path: Path, *, is_old: bool = False) -> Anchors:
        # a column may stand in one of the files only; a file of labels is joined to the old
        # version's anchors
        own = columns if is_old or not joined else replace(columns, labels=None)
        return read_anchors(path, **vars(own), optional=not (is_old and joined))

    versions = read(old, is_old=True), read(new)
    known = [anchor for version in versions for anchor in version.by_name.values()]
    for name, field in (("labels", "label"), ("cluster", "cluster")):
        column = getattr(columns, name)
        if column is not None and all(getattr(one, field) is None for one in known):
            raise ConfigError(
                f"--{name} is '{column}': neither {old} nor {new} has such a column, and there is "
                f"no such file"
            )
    change = compare_versions(
        *versions,
        old_again=[read(path) for path in old_again or ()],
        new_again=[read(path) for path in new_again or ()],
        bounds=bounds,
        tolerance=tolerance,
        confidence=confidence,
        seed=seed,
    )
    opt.show(json, drift_dict(change), drift_lines(change, str(old), str(new)))
    sys.exit(int(bool(change.findings)))


@dataclass(frozen=True)
class LogColumns:
    """Which columns of a training log mean what, where they have other names.

    Attributes:
        step: Column of the step, where it has another name.
        prompt: Column of the prompt.
        completion: Column of the completion.
        total: Column of the reward the components add up to.
        length: Column of the completion's length.
    """

    step: str | None = None
    prompt: str | None = None
    completion: str | None = None
    total: str | None = None
    length: str | None = None


@opt.grouped()
def watch(
    log: Path,
    component: list[str] | None = None,
    weight: list[str] | None = None,
    window: float = 0.3,
    examples: Annotated[int, typer.Option(min=0)] = 3,
    confidence: float = 0.95,
    *,
    columns: LogColumns,
    json: opt.Json = False,
) -> None:
    """Check a training log for rewards that diverge, follow length, are constant or teach nothing;
    exit 1 when some do.

    Args:
        log: Folder of a TRL or verl run, or a jsonl, parquet, csv or trainer_state file.
        component: A column that is a reward; may be repeated. All columns of numbers by default.
        weight: NAME=W, the weight of a reward; negative for a penalty. May be repeated.
        window: Share of the steps that is early, and that is late.
        examples: Completions shown with a finding.
        confidence: Of a finding, over all figures together.
    """
    from rm_gallery.train.watch import watch as look
    from rm_gallery.train.watch import watched_lines

    watched = look(
        log,
        components=component,
        weights=_parse_weights(weight or []),
        window=window,
        examples=examples,
        confidence=confidence,
        **vars(columns),
    )
    opt.show(json, watched.to_dict(), watched_lines(watched))
    sys.exit(int(bool(watched.warned)))


def _parse_weights(given: list[str]) -> dict[str, float]:
    weights = {}
    for pair in given:
        name, _, value = pair.rpartition("=")
        try:
            weights[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise ConfigError(f"--weight is '{pair}'; write NAME=W, such as length=-0.1")
    return weights


@opt.grouped("param", "on_bad_row")
def judge_select(
    judges: Annotated[list[str], typer.Argument(metavar="JUDGE")],
    data: opt.Data[str],
    labels: str | None = None,
    fail_under: Annotated[list[str] | None, typer.Option(metavar="MEASURE=X")] = None,
    judge: str | None = None,
    use_ci: opt.UseCi = False,
    as_good_within: float | None = None,
    second_labels: str | None = None,
    by: str | None = None,
    limit: opt.Limit = None,
    as_format: opt.Form = "text",
    *,
    run: opt.Running,
) -> None:
    """Compare judges by how they agree with people's labels on the same rows, and say which to take.

    Args:
        judges: YAML file as for grade, with the judges under graders, labels, cluster; or two
            rewards or more, such as column:NAME.
        data: Parquet, jsonl, json, csv or xlsx file with a labelled row per item.
        labels: Column of people's labels; a config names one itself.
        fail_under: Exit with 1 when kappa, accuracy or spearman is lower at worst; may be repeated.
        judge: The judge that --fail-under is about; the first by default.
        as_good_within: Name the judges shown to agree less by no more than this, in points
            (hundredths of a correlation).
        second_labels: Column of a second person's labels: what people reach stands beside the judges.
        by: Column of subsets that the difference of two judges may differ between.
        as_format: text, or md for a comment on a change.
    """
    from rm_gallery.study.select import judge_select as find_judge

    least = _limits(fail_under or ())
    if as_format not in ("text", "md"):
        raise ConfigError(f"--format is {as_format!r:.40}; it is text or md.")
    options = run.options()
    configured = len(judges) == 1 and ":" not in Path(judges[0]).name
    named = {"graders": [{"name": name} for name in judges]}
    known = read_config(Path(judges[0])) if configured else named
    people = labels or known.get("labels")
    if people is None:
        raise ConfigError(
            "people's labels are missing; name their column with --labels, or as `labels:` in a config."
        )
    if not isinstance(people, str):
        raise ConfigError(
            f"{judges[0]}: `labels:` is {people!r:.60}; name one column of labels, the same for "
            f"every judge, there or with --labels."
        )
    runner, path = runner_of(known, run.llm, run.base_url), rows_file(data)
    if judge is not None and judge not in runner.grader_configs:
        raise ConfigError(f"--judge: {unknown_name('judge', judge, runner.grader_configs)}")
    how: dict[str, Any] = {"cluster": known.get("cluster"), "limit": limit, "seed": run.seed}
    how |= {"as_good_within": as_good_within, "second_labels": second_labels, "by": by}
    with run.resumable():
        selection = find_judge(runner, path, people, options=options, **how)
    markdown, report = as_format == "md", selection.report
    lines = opt.table_lines(selection.rows(), markdown)
    shown = selection.to_dict()
    opt.show(run.json, shown, [shown["worth"], *([""] if markdown else []), *lines])
    missed = selection.missed(least, name=judge, surely=use_ci)
    opt.say_lost(report.reasons, report.stopped, "rows")
    failed = opt.say_missed(missed) or report.n_stopped or not selection.n_shared
    sys.exit(int(bool(failed)))


def _limits(given: Iterable[str]) -> dict[str, float]:
    from rm_gallery.study.select import MEASURES

    least = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name not in MEASURES:
            raise ConfigError(
                f"--fail-under {text!r:.60}: {unknown_name('measure', name, MEASURES)} Write "
                f"kappa=0.6."
            )
        try:
            least[name] = float(value)
        except ValueError:
            least[name] = math.nan
        if not equals or not -1.0 <= least[name] <= 1.0:
            raise ConfigError(
                f"--fail-under {text!r:.60}: give a number from -1 to 1, such as {name}=0.6."
            )
    return least
