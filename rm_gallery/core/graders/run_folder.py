"""A run's folder as graders see it: which rows are done by which grader, and what was said about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from rm_gallery.core.engine.context import asked_by
from rm_gallery.core.engine.folder.kept import RunFolder, about_code
from rm_gallery.core.engine.folder.store import STATUSES
from rm_gallery.core.graders.result import GraderError, GraderRank, GraderResult, GraderScore, as_result
from rm_gallery.core.outcome import NOT_BEGUN

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.graders.run import Plan, Row

_KINDS: dict[str, type[GraderResult]] = {"score": GraderScore, "rank": GraderRank, "error": GraderError}


class GraderFolder(RunFolder):
    """Keeps what each grader said of each row; a row that one of five graders failed on is judged again by that one."""

    def __init__(self, plans: Mapping[str, Plan], options: RunOptions) -> None:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run, or when a setting cannot be told
        from another one. What a mapper makes of a row is a part of the row's key, and aggregators are no part of the run: what
        they make of the results is worked out anew.
        """
        graders = {name: {"grader": plan.grader.describe(), "on_error": plan.on_error} for name, plan in plans.items()}
        super().__init__(options, {"graders": graders}, reuse=STATUSES, what="rows")
        self._plans = plans

    def key_of(self, data: Row) -> str:
        """The row's id and a hash of what its graders read."""
        return data.read_key

    def restore(self, row: Row) -> dict[str, GraderResult]:
        """What an earlier part of the run found of a row, by grader; what is missing has to be judged.

        Raises ConfigError when a judge would be asked something else now.
        """
        judged = [(job.plan.grader, job.fields) for job in row.jobs if job.plan.grader.judged]
        if judged and (record := self.record_of(row)) is not None:
            ways = [partial(grader._grade, **fields) for grader, fields in judged if isinstance(fields, dict)]
            self.check_asked(row, record, asked_by(ways))
        return self.known(row, self._read, lambda found: len(found) == len(self._plans)) or {}

    def _read(self, record: dict[str, Any]) -> dict[str, GraderResult] | None:
        results = record.get("results")
        if not isinstance(results, dict):
            return None
        found = {name: self._one(name, results.get(name)) for name in self._plans}
        return {name: result for name, result in found.items() if result is not None}

    def fits(self, record: dict[str, Any], data: Row) -> bool:
        """Whether it holds a result of one of the graders."""
        return bool(self._read(record))

    def _one(self, name: str, said: Any) -> GraderResult | None:
        """A result as it was kept; None for one that failed or does not fit."""
        if not isinstance(said, dict) or said.get("kind") not in _KINDS:
            return None
        try:
            found = _KINDS[said["kind"]].model_validate({key: item for key, item in said.items() if key != "kind"})
            if isinstance(found, GraderError):
                return found if found.status == "unscored" else None
            return as_result(found, self._plans[name].grader.about())
        except (ValidationError, ValueError):
            return None

    def append(self, row: Row, results: Mapping[str, GraderResult]) -> None:
        """Keep a finished row; it is on disk after the next `flush`. What the run did not get to leaves no record."""
        said = {name: result for name, result in results.items() if not _not_begun(result)}
        stopped = len(said) < len(results)
        statuses = {result.status for result in said.values() if isinstance(result, GraderError)}
        failed = stopped or "failed" in statuses
        status = "failed" if failed else "unscored" if statuses else "scored"
        self.keep(row, status, self.said(row, said) if said else {}, stopped)

    def said(self, data: Row, *results: Mapping[str, GraderResult]) -> dict[str, Any]:
        """What each grader said."""
        return {"results": {name: result_record(result) for name, result in results[0].items()}}

    def told(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """By grader, its score or ranks, or why it has none."""
        found: dict[str, Any] = {}
        for name, result in said["results"].items():
            if result.get("kind") != "error":
                found[name] = result.get("score", result.get("rank"))
            elif about_code(result.get("status", "failed"), result.get("error_type", ""), result.get("cause")):
                found[name] = f"no score ({result.get('error_type')})"
        return found


def _not_begun(result: GraderResult) -> bool:
    return isinstance(result, GraderError) and result.error_type in NOT_BEGUN


def result_record(result: GraderResult) -> dict[str, Any]:
    """A result in JSON's types, without what is as usual."""
    kind = next((kind for kind, cls in _KINDS.items() if isinstance(result, cls)), "error")
    out = {"kind": kind, **result.model_dump(exclude_defaults=True)}
    try:
        orjson.dumps(out)
    except TypeError:  # metadata are anybody's
        out["metadata"] = orjson.loads(orjson.dumps(out["metadata"], default=str, option=orjson.OPT_NON_STR_KEYS))
    return out
