"""Metric folders previewed on samples exactly as they will run, and deployed as a version in the
local store; nothing leaves this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from rm_gallery.core.data.conversation import message_dicts
from rm_gallery.core.data.load.converters import RowRef, json_cell, required
from rm_gallery.core.data.load.readers import file_sources
from rm_gallery.core.engine import loop
from rm_gallery.core.reward.function_result import evaluated
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.score import Score, Status
from rm_gallery.core.utils.errors import ConfigError, DataError, SandboxUnavailable
from rm_gallery.evaluation.bundle import Bundle, Mode, bundle_folders
from rm_gallery.evaluation.pool import LIMITS, EvaluatorPool, check_count, missing_requirements
from rm_gallery.evaluation.store import Store

_TOGETHER = 64
_PRINTED = 20_000
_PAYLOAD = ("messages", "ground_truth", "original_messages", "tools")


@dataclass(frozen=True)
class PreviewSample:
    """One sample's result."""

    index: int
    """Counted from 1."""
    id: str
    outcome: Score[float]
    result = cached_property(lambda self: evaluated(self.outcome))
    """What the evaluator returned, or what stands for it where it broke."""

    @property
    def status(self) -> Status:
        """Whether it was scored, unscored or failed."""
        return self.outcome.status

    @property
    def score(self) -> float | None:
        """None unless scored."""
        return self.outcome.value

    @property
    def reason(self) -> str:
        """The evaluator's reason, or why there is no score."""
        return self.result.error or self.result.reason or ""

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Each metric's score; None for one that is not valid."""
        return {
            name: metric.score if metric.is_score_valid else None
            for name, metric in self.result.metrics.items()
        }

    @property
    def success(self) -> bool:
        """Whether it has a score."""
        return self.status == "scored"

    @property
    def per_metric_evals(self) -> Mapping[str, float | None]:
        """Another name of `metrics`."""
        return self.metrics


@dataclass(frozen=True)
class PreviewResult:
    """The samples of a preview with their scores."""

    results: Sequence[PreviewSample]
    seconds: float
    sandbox: str
    """Where the code ran: "bwrap", or "subprocess" (limits alone)."""
    printed: str = ""
    """What the code printed, the beginning of it."""
    skipped: Sequence[str] = field(default=())
    """Files that are not part of the evaluator, and why."""

    @property
    def total_samples(self) -> int:
        """How many samples were evaluated."""
        return len(self.results)

    @property
    def total_runtime_ms(self) -> int:
        """How long that took, starting the code included."""
        return round(self.seconds * 1000)

    def count(self, status: str) -> int:
        """How many samples are "scored", "unscored" or "failed"."""
        return sum(each.status == status for each in self.results)

    @property
    def _counts(self) -> dict[str, int]:
        return {status: self.count(status) for status in ("scored", "unscored", "failed")}

    @property
    def mean(self) -> float | None:
        """The mean over the scored samples; None where there is none."""
        scores = [each.score for each in self.results if each.score is not None]
        return sum(scores) / len(scores) if scores else None

    def lines(self) -> Iterator[str]:
        """The preview as text."""
        for each in self.results:
            yield f"Sample {each.index}{f' ({each.id})' if each.id else ''}:"
            score = f"none, {each.status}" if each.score is None else f"{each.score:.2f}"
            yield f"  Score: {score}"
            if each.reason:
                yield f"  Reason: {each.reason}"
            for name, metric in each.result.metrics.items():
                shown = f"{metric.score:.2f}" if metric.is_score_valid else "none"
                yield f"  {name}: {shown}{f' - {metric.reason}' if metric.reason else ''}"
        mean = (
            "" if self.mean is None else f"; mean {self.mean:.4f} of {self.count('scored')} scored"
        )
        counts = ", ".join(f"{n} {status}" for status, n in self._counts.items())
        yield f"{self.total_samples} samples in {self.total_runtime_ms} ms: {counts}{mean}"

    def display(self) -> str:
        """The preview as text of several lines."""
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "samples": self.total_samples,
            **self._counts,
            "mean": self.mean,
            "seconds": round(self.seconds, 3),
            "sandbox": self.sandbox,
            "printed": self.printed,
            "skipped": list(self.skipped),
            "results": [
                {name: getattr(each, name) for name in ("index", "id", "status", "score", "reason")}
                | {"metrics": each.outcome.extra.get("metrics", {})}
                for each in self.results
            ],
        }


def preview_evaluation(
    metric_folders: Sequence[str | os.PathLike[str]] | None = None,
    multi_metrics: bool = False,
    folder: str | os.PathLike[str] | None = None,
    python_code_to_evaluate: str | None = None,
    python_file_name_for_code: str = "main.py",
    criterion_name_for_code: str = "default_code_criterion",
    criterion_description_for_code: str | None = None,
    sample_file: str | os.PathLike[str] | None = None,
    max_samples: int = 5,
    reward_function_mode: Mode | None = None,
    account_id: str | None = None,
    api_key: str | None = None,
    *,
    samples: Sequence[Mapping[str, Any]] | None = None,
    sandbox: str | None = None,
    limits: SandboxLimits = LIMITS,
) -> PreviewResult:
    """Run metric folders on samples, as a deployed version of them would run; offline, without any
    key.

    Args:
        metric_folders: as for `create_evaluation`, and so are the arguments up to
            `criterion_description_for_code`.
        multi_metrics: accepted and without effect.
        folder: see metric_folders.
        python_code_to_evaluate: see metric_folders.
        python_file_name_for_code: see metric_folders.
        criterion_name_for_code: see metric_folders.
        criterion_description_for_code: see metric_folders.
        sample_file: jsonl, json, csv, xlsx or parquet file with a column `messages`, the answer
            last; `ground_truth`, `original_messages`, `tools` and `id` where they are there; every
            other column is a keyword of the function.
        max_samples: only the first this many.
        reward_function_mode: see `create_evaluation`.
        account_id: accepted and without effect, as is `api_key`.
        api_key: see account_id.
        samples: the samples themselves instead of a file.
        sandbox: "bwrap" or "subprocess" (limits alone); by default bubblewrap where it is
        installed, else limits alone, since the code is the caller's own.
        limits: what one sample may take.

    Raises:
        ConfigError: folders, samples or settings do not fit; DataError names file and row.
        EvaluatorBroken: the code does not load.
    """
    bundle = bundle_folders(
        metric_folders,
        folder=folder,
        code=python_code_to_evaluate,
        code_file=python_file_name_for_code,
        code_name=criterion_name_for_code,
        mode=reward_function_mode,
    )
    if (sample_file is None) == (samples is None):
        raise ConfigError(
            "name the samples to try in one way: sample_file=PATH (--samples PATH) or samples=[…]"
        )
    check_count("max_samples", max_samples)
    rows = (
        _rows_of(Path(sample_file).expanduser())
        if sample_file is not None
        else _given_rows(samples or ())
    )
    payloads = [_payload(row, where) for where, row in islice(rows, max_samples)]
    if not payloads:
        raise DataError(
            f"{sample_file if sample_file is not None else 'samples'}: there is no sample in it"
        )
    chosen = sandbox or _best_sandbox()
    printed: list[str] = []
    began = time.monotonic()
    scores = loop.run(
        _run_payloads(bundle, [payload for _, payload in payloads], chosen, limits, printed.append),
        "preview_evaluation",
        "asyncio.to_thread(preview_evaluation, …)",
    )
    previews = [
        PreviewSample(at, id, score)
        for at, ((id, _), score) in enumerate(zip(payloads, scores, strict=True), 1)
    ]
    seconds = time.monotonic() - began
    return PreviewResult(previews, seconds, chosen, "".join(printed)[:_PRINTED], bundle.skipped)


def _best_sandbox() -> str:
    try:
        get_runner("bwrap")
    except SandboxUnavailable:
        return "subprocess"
    return "bwrap"


async def _run_payloads(
    bundle: Bundle,
    payloads: Sequence[Mapping[str, Any]],
    sandbox: str,
    limits: SandboxLimits,
    on_print: Callable[[str], None] | None = None,
) -> list[Score[float]]:
    pool = EvaluatorPool(bundle, workers=2, limits=limits, sandbox=sandbox, on_print=on_print)
    try:
        await pool.ready()
        together = len(payloads) or 1 if bundle.mode == "batch" else _TOGETHER
        scores: list[Score[float]] = []
        for at in range(0, len(payloads), together):
            scores += await pool.scores(payloads[at : at + together])
        return scores
    finally:
        await pool.close()


def _rows_of(path: Path) -> Iterator[tuple[RowRef, Mapping[str, Any]]]:
    for source in file_sources(path):
        for where, row in source.rows():
            if isinstance(row, DataError):
                raise row
            yield where, row


def _given_rows(samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[RowRef, Mapping[str, Any]]]:
    for number, row in enumerate(samples, 1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"samples, row {number}: expected a mapping with 'messages', found "
                f"{type(row).__name__}"
            )
        yield RowRef("samples", number), row


def _payload(row: Mapping[str, Any], where: RowRef) -> tuple[str, dict[str, Any]]:
    """The sample's id and what is asked about it."""
    messages = message_dicts(json_cell(required(row, "messages", where)), f"{where}, messages")
    payload = {name: row[name] for name in _PAYLOAD[1:] if row.get(name) is not None}
    kwargs = {name: value for name, value in row.items() if name not in (*_PAYLOAD, "id")}
    return str(row.get("id") or ""), {"messages": messages, **payload, "kwargs": kwargs}


def create_evaluation(
    evaluator_id: str,
    metric_folders: Sequence[str | os.PathLike[str]] | None = None,
    multi_metrics: bool = False,
    folder: str | os.PathLike[str] | None = None,
    python_code_to_evaluate: str | None = None,
    python_file_name_for_code: str = "main.py",
    criterion_name_for_code: str = "default_code_criterion",
    criterion_description_for_code: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    force: bool = False,
    reward_function_mode: Mode | None = None,
    account_id: str | None = None,
    api_key: str | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """Store metric folders as a new version of an evaluator; the server's next request for it runs
    that version.

    Args:
        evaluator_id: up to 63 letters, digits, "-", "_" and "."; the last part of its address.
        metric_folders: `name=path` each; a folder holds `main.py` with a function `evaluate`.
        multi_metrics: accepted and without effect: a function may always report several metrics.
        folder: instead: one such folder, or one whose sub-folders are.
        python_code_to_evaluate: instead: the text of one `main.py`.
        python_file_name_for_code: its name, `main.py`.
        criterion_name_for_code: the name of that metric.
        criterion_description_for_code: the description where `description` is not given.
        display_name: what people call it; default the id.
        description: what it measures.
        force: a further version where the id is there; its older versions stay and can be gone back
            to.
        reward_function_mode: "pointwise" or "batch", where `@reward_function(mode=…)` does not say
            it.
        account_id: accepted and without effect, as is `api_key`: there is no account.
        api_key: see account_id.
        store: an open store, or its URL or path; default RM_GALLERY_STORE, else the user's own.
        check: load the code in the sandbox first, where there is one and what it requires is
            installed.

    Returns:
        `name` ("accounts/local/evaluators/ID"), `id`, `version`, `hash`, `requirements`, `skipped`
        (files left out) and the rest of what is known of the version.

    Raises:
        ConfigError: folders, texts or the id do not fit; EvaluatorExists: the id is taken and
            `force` is not given.
        EvaluatorBroken: the code does not load; nothing is stored.
        StoreError: the database failed; nothing is stored.
    """
    bundle = bundle_folders(
        metric_folders,
        folder=folder,
        code=python_code_to_evaluate,
        code_file=python_file_name_for_code,
        code_name=criterion_name_for_code,
        mode=reward_function_mode,
    )
    about = (
        description
        or (criterion_description_for_code if python_code_to_evaluate is not None else None)
        or ""
    )
    with contextlib.ExitStack() as stack:
        target = store if isinstance(store, Store) else stack.enter_context(Store.open(store))
        target.check_free(evaluator_id, force=force)
        if check and not missing_requirements(bundle.requirements):
            load_once(bundle)
        deployed = target.save(
            evaluator_id, bundle, display_name=display_name or "", description=about, force=force
        )
    return {**deployed.as_dict(), "skipped": list(bundle.skipped)}


def load_once(bundle: Bundle) -> None:
    """Load the code in a sandbox and end it; raises EvaluatorBroken. Without bubblewrap nothing is
    tried.
    """
    with contextlib.suppress(SandboxUnavailable):
        load = _run_payloads(bundle, (), "auto", LIMITS)
        loop.run(load, "create_evaluation", "asyncio.to_thread(create_evaluation, …)")
