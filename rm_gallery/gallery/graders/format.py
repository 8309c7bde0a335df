"""Formats: is a response JSON, XML or YAML, and is it the JSON that was wanted?"""

from __future__ import annotations

import math
from typing import Any, Literal

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.result import GraderScore
from rm_gallery.core.text.blocks import read_json, split_fences, split_reasoning
from rm_gallery.core.utils.errors import Unscored

MOST = 1_000_000
"""Characters of a response that are read, at most."""
DEEPEST = 200
"""Levels of YAML that are read, at most."""


def body_of(response: str, allow_fence: bool) -> str:
    """What a response says after its reasoning: its single fenced block, where that is allowed, else all of it."""
    text = split_reasoning(response).final.strip()
    blocks, prose = split_fences(text) if allow_fence else ([], text)
    return blocks[0].body if len(blocks) == 1 and not prose.strip() else text


class JsonValidatorGrader(BaseGrader):
    """1 when the response is JSON and nothing else, else 0; `allow_fence` also takes it in one fenced block.

    Field: `response`. NaN, Infinity, comments and trailing commas are no JSON. For a schema see `json_schema`.
    """

    name: str = "json_validator"
    allow_fence: bool = True

    def _grade(self, response: str) -> GraderScore:
        try:
            read_json(body_of(str(response), self.allow_fence)[:MOST])
        except ValueError as error:
            return GraderScore(score=0.0, reason=f"No JSON: {error}", **self.about())
        return GraderScore(score=1.0, reason="JSON.", **self.about())


class JsonMatchGrader(BaseGrader):
    """Whether the response is the reference's JSON.

    Fields: `response`; `reference_response` (JSON text or a value). 1 when both are equal, else 0; with `partial` the share of
    the reference's values found at their places. Objects are compared whatever the order of their keys; a key that is missing
    is not one that is null; true is not 1, while 1 is 1.0. `strict_order` compares lists place by place, else as bags.
    `ignore_extra_keys` passes over keys that the reference does not have. A response that is no JSON is 0, a reference that is
    none leaves the row unscored.
    """

    name: str = "json_match"
    strict_order: bool = True
    ignore_extra_keys: bool = False
    partial: bool = False
    allow_fence: bool = True

    def _grade(self, response: str, reference_response: Any) -> GraderScore:
        try:
            wanted = read_json(reference_response) if isinstance(reference_response, str) else reference_response
        except ValueError as error:
            raise Unscored(f"{self.name}: the reference is no JSON: {error}", reason="no_reference") from error
        try:
            given = read_json(body_of(str(response), self.allow_fence)[:MOST])
        except ValueError as error:
            return GraderScore(score=0.0, reason=f"No JSON: {error}", **self.about())
        if not self.partial:
            return GraderScore(score=float(self._same(given, wanted)), **self.about())
        found, total = self._counted(given, wanted)
        return GraderScore(score=found / total, reason=f"{found} of {total} values.", **self.about())

    def _same(self, given: Any, wanted: Any) -> bool:
        if isinstance(given, bool) or isinstance(wanted, bool) or given is None or wanted is None:
            return given is wanted
        if isinstance(given, (int, float)) and isinstance(wanted, (int, float)):
            return bool(given == wanted) or _close(given, wanted)
        if isinstance(given, dict) and isinstance(wanted, dict):
            extra = given.keys() - wanted.keys()
            return (
                wanted.keys() <= given.keys()
                and (self.ignore_extra_keys or not extra)
                and all(self._same(given[key], value) for key, value in wanted.items())
            )
        if isinstance(given, list) and isinstance(wanted, list):
            if len(given) != len(wanted):
                return False
            if self.strict_order:
                return all(self._same(a, b) for a, b in zip(given, wanted, strict=True))
            return _matching([[self._same(a, b) for b in wanted] for a in given]) == len(wanted)
        return type(given) is type(wanted) and bool(given == wanted)

    def _counted(self, given: Any, wanted: Any) -> tuple[int, int]:
        """Values of the reference found at their places, and all of them."""
        if isinstance(wanted, dict) and wanted:
            pairs = [(given.get(k, _ABSENT) if isinstance(given, dict) else _ABSENT, v) for k, v in wanted.items()]
        elif isinstance(wanted, list) and wanted:
            items = given if isinstance(given, list) else []
            pairs = [(items[i] if i < len(items) else _ABSENT, value) for i, value in enumerate(wanted)]
        else:
            return int(self._same(given, wanted)), 1
        parts = [self._counted(a, b) for a, b in pairs]
        return sum(found for found, _ in parts), sum(total for _, total in parts)


_ABSENT = object()


def _close(one: float, other: float) -> bool:
    try:
        return math.isclose(one, other, rel_tol=1e-12)
    except OverflowError:
        return False


def _matching(table: list[list[bool]]) -> int:
    """Size of a maximum matching of rows to columns: the first fit is not always the right one."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if not table or not table[0]:
        return 0
    found = maximum_bipartite_matching(csr_matrix(np.array(table, dtype=np.int8)), perm_type="column")
    return int((found >= 0).sum())


class MarkupValidatorGrader(BaseGrader):
    """1 when the response is well-formed XML, or YAML that is a mapping or list, else 0; `allow_fence` takes a fenced block.

    Field: `response`. XML with a document type is refused: its entities could blow up. YAML tags make no objects.
    """

    name: str = "markup_validator"
    markup: Literal["xml", "yaml"] = "xml"
    allow_fence: bool = True

    def _grade(self, response: str) -> GraderScore:
        body = body_of(str(response), self.allow_fence)[:MOST]
        problem = _xml_problem(body) if self.markup == "xml" else _yaml_problem(body)
        return GraderScore(score=float(not problem), reason=problem or f"{self.markup.upper()}.", **self.about())


def _xml_problem(text: str) -> str:
    from xml.parsers import expat

    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise ValueError("a document type is not allowed")

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except (expat.ExpatError, ValueError) as error:
        return f"No XML: {error}"
    return ""


def _yaml_problem(text: str) -> str:
    import yaml

    kinds, depth = [], 0
    try:
        # events alone: aliases are not expanded and tags make nothing
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            kinds.append(type(event).__name__)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:  # the parser's time grows with the square of the depth
                return f"No YAML that is read: nested more than {DEEPEST} deep."
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return f"No YAML: {str(error).splitlines()[0]}"
    begins = next((kind for kind in kinds if kind not in ("StreamStartEvent", "DocumentStartEvent")), "")
    return "" if begins in ("MappingStartEvent", "SequenceStartEvent") else "No mapping or list, only plain text."
