"""Rubrics as others write them: read into one object and written back, with the arithmetic of their
source.

Sources: HealthBench (arXiv 2505.08775), Rubrics as Rewards (arXiv 2507.17746), DR Tulu (arXiv
2511.19399), RLCF (arXiv 2507.18624), PaperBench (arXiv 2504.01848), and the packages verifiers,
harbor-rewardkit, autorubric and tinker-cookbook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rm_gallery.core.reward.rubric import (
    Criterion,
    Level,
    Rubric,
    even,
    problem,
)
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.models import unknown_name

Item = Mapping[str, Any]
TEXTS = (
    "text",
    "criterion",
    "requirement",
    "description",
    "rubric_str",
    "rubric",
    "question",
    "requirements",
)
POINTS = ("points", "weight", "score", "importance")
NAMES = ("name", "title", "id")
LISTS = ("criteria", "rubrics", "rubric", "criterion", "requirements", "checklist")
"""Keys under which a document holds its list."""
CATEGORIES = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": 0.9}
"""Weights of the categories of Rubrics as Rewards, section on explicit aggregation."""
HARBOR = {
    "weighted-mean": "points",
    "weighted-sum": "sum",
    "all-pass": "all",
    "any-pass": "any",
    "threshold": "threshold",
    "required-pass": "required",
}
TYPES = ("binary", "likert", "numeric", "rubric")
RULE = ("aggregate", "threshold", "clip")
TOO_LIKE = 0.8
"""A key that is as like a field as this, and holds what it could, is misspelt and no note."""


@dataclass(frozen=True)
class Shape:
    """A format of rubrics.

    Attributes:
        fits: whether an item of a document is in this format.
        text, points, name: the keys of what every criterion has.
        read: what an item says beyond them, as fields of a Criterion; it takes the keys it reads.
        write: the same keys of a criterion.
        holds: fields of a Criterion that the format has a word for.
        same: the field that all its criteria have alike, and what that is called.
        signed: whether points may be negative.
        rubric: how this format is scored.
    """

    fits: Callable[[Item], Any]
    text: str
    points: str = ""
    name: str = "title"
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda item: {}
    write: Callable[[Criterion], dict[str, Any]] = lambda one: {}
    holds: Sequence[str] = ()
    same: tuple[str, Any, str] | None = None
    signed: bool = True
    rubric: Mapping[str, Any] = field(default_factory=dict)


# -- items -----------------------------------------------------------------------------------------


def _category(item: dict[str, Any]) -> dict[str, Any]:
    category = item.get("category")
    if category is None or any(name in item for name in POINTS):
        return {}
    if str(category).lower() not in CATEGORIES:
        raise ConfigError(unknown_name("category of a criterion", str(category), CATEGORIES))
    return {"points": CATEGORIES[str(category).lower()]}


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.pop("type", "binary")
    if kind not in TYPES:
        raise ConfigError(unknown_name("type of a criterion", str(kind), TYPES))
    fields: dict[str, Any] = {name: bool(item.pop(name, 0)) for name in ("negate", "optional")}
    if kind == "likert":
        fields["scale"] = (1.0, float(item.pop("points", 5)))
    elif kind == "numeric":
        fields["scale"] = (float(item.pop("min", 0.0)), float(item.pop("max", 1.0)))
    elif kind == "rubric":
        fields["levels"] = [
            {**one, "label": str(n), "description": one["label"]}
            for n, one in enumerate(even(item.pop("levels")))
        ]
    # an answer by a number has `points` of its own, so the weight is its own key
    return {**fields, "points": item.pop("weight", 1.0)}


def _to_typed(one: Criterion) -> dict[str, Any]:
    made: dict[str, Any] = {n: True for n in ("negate", "optional") if getattr(one, n)}
    if one.levels:
        levels = [level.description or level.label for level in one.levels]
        return {**made, "type": "rubric", "levels": levels}
    if one.scale is None:
        return {**made, "type": "binary"}
    low, high = one.scale
    if low == 1 and high == int(high):
        return {**made, "type": "likert", "points": int(high)}
    return {**made, "type": "numeric", "min": low, "max": high}


def _options(item: dict[str, Any]) -> dict[str, Any]:
    options = item.pop("options", None) or []
    levels = [{"label": str(o["label"]), "value": o["value"]} for o in options if not o.get("na")]
    return {
        "levels": sorted(levels, key=lambda one: float(one["value"])),
        "not_applicable": not options or any(one.get("na") for one in options),
    }


def _to_options(one: Criterion) -> dict[str, Any]:
    options: list[Any] = [{"label": level.label, "value": level.value} for level in one.levels]
    if options and one.not_applicable:
        options.append({"label": "N/A", "value": 0.0, "na": True})
    return {"options": options} if options else {}


def _own(item: dict[str, Any]) -> dict[str, Any]:
    own = {name: item.pop(name) for name in Criterion.model_fields if name in item}
    for name in (name for name, value in item.items() if isinstance(value, (bool, list))):
        if near := get_close_matches(name, Criterion.model_fields, 1, TOO_LIKE):
            raise ConfigError(f"there is no field '{name}'; did you mean {near[0]}")
    return own | {"parts": _parts("plain", own.get("parts"))}


def _parts(shape: str, parts: Any) -> list[Criterion]:
    return [
        _criterion(_item(part, number), SHAPES[shape], f"parts.{number}")
        for number, part in enumerate(parts or [], 1)
    ]


SHAPES: dict[str, Shape] = {
    "paperbench": Shape(
        lambda item: "sub_tasks" in item,
        "requirements",
        "weight",
        "id",
        lambda item: {"parts": _parts("paperbench", item.pop("sub_tasks", None))},
        lambda one: {"sub_tasks": [_written(part, "paperbench") for part in one.parts]},
        ["parts"],
        signed=False,
    ),
    "harbor": Shape(
        lambda item: item.get("type") in TYPES,
        "description",
        "weight",
        "name",
        _typed,
        _to_typed,
        ["levels", "scale", "negate", "optional"],
    ),
    "tinker": Shape(
        lambda item: "rubric_str" in item,
        "rubric_str",
        same=("scale", (0.0, 1.0), "a number from 0 to 1"),
    ),
    "rlcf": Shape(
        lambda item: "question" in item,
        "question",
        "weight",
        read=lambda item: {"not_applicable": True},
        holds=["not_applicable"],
        same=("scale", (0.0, 100.0), "a number from 0 to 100"),
        signed=False,
    ),
    "verifiers": Shape(
        lambda item: "choices" in item,
        "text",
        "weight",
        "name",
        lambda item: {"levels": even(item.pop("choices", None) or [])},
        lambda one: {"choices": [level.label for level in one.levels] or ["no", "yes"]},
        ["levels"],
        signed=False,
    ),
    "autorubric": Shape(
        lambda item: "requirement" in item,
        "requirement",
        "weight",
        "name",
        _options,
        _to_options,
        ["levels", "not_applicable"],
        rubric={"faults_alone": "deducted"},
    ),
    "dr_tulu": Shape(
        lambda item: (
            "description" in item
            and item.get("weight", 1) in (-1, 1)
            and (
                item.get("weight") == -1
                or item.get("type") in ("persistent", "active", "static", "positive", "negative")
            )
        ),
        "description",
        "weight",
        same=(
            "levels",
            [Level(label=str(grade), value=grade / 2) for grade in range(3)],
            "the grades 0, 1 and 2",
        ),
        rubric={"least": 1.0, "clip": False},
    ),
    "rar": Shape(
        lambda item: "description" in item, "description", "weight", read=_category, signed=False
    ),
    "healthbench": Shape(
        lambda item: "criterion" in item and "points" in item,
        "criterion",
        "points",
        read=lambda item: {"tags": list(item.pop("tags", None) or [])},
        write=lambda one: {"tags": one.tags},
        holds=["tags"],
        rubric={"clip": False},
    ),
    "plain": Shape(lambda item: True, "text", "points", "name", _own),
}
"""Each format by its name; the first that fits a document is its own."""


# -- documents -------------------------------------------------------------------------------------


def read_rubric(value: Any, shape: str | None = None, language: str = "en") -> Rubric:
    """A rubric from what holds one: a file (.json, .jsonl, .yaml, .toml), a list of texts or of
    items, or a whole document, of which the texts in `language` count.

    The format is found by its keys unless `shape` names it: healthbench, rar, dr_tulu, rlcf,
    verifiers, harbor, autorubric, paperbench, tinker or plain. Raises ConfigError that names the
    file, the criterion and the key for an unknown key with a number in it, which could be points,
    and in a plain one for a misspelt field.
    """
    if isinstance(value, Rubric):
        return value
    if isinstance(value, Path):
        content = read_file(value)
        try:
            return read_rubric(content, shape, language)
        except ConfigError as error:
            raise ConfigError(f"{value}: {error}") from error
    value = _document(value, language)
    if shape is None and isinstance(value, Mapping) and "criteria" in value:
        if set(value) <= set(Rubric.model_fields):  # one of ours that was dumped
            rubric = read_rubric(value["criteria"])
            return _made({**dict(rubric), **value, "criteria": rubric.criteria})
    items, about = _items(value)
    kind = shape or next(
        (name for name, known in SHAPES.items() if items and known.fits(items[0])), "plain"
    )
    known = _shape_named(kind)
    if kind == "rar" and any(SHAPES["dr_tulu"].fits(item) for item in items):
        kind, known = "dr_tulu", SHAPES["dr_tulu"]
    for name in set(about) - set(RULE) if kind == "plain" else ():
        if near := get_close_matches(name, RULE, 1, TOO_LIKE):
            raise ConfigError(f"There is no field '{name}' of a rubric. Did you mean {near[0]}?")
    criteria = [_criterion(item, known, str(number)) for number, item in enumerate(items, 1)]
    return _made({**known.rubric, **_rule(about), "criteria": criteria, "shape": kind})


def rubric_of_setting(value: Any) -> Rubric:
    """`read_rubric` for a field of a reward or grader: what cannot be read is a ValueError."""
    try:
        return read_rubric(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def write_rubric(rubric: Rubric, shape: str | None = None) -> Any:
    """A rubric in a format, its own unless one is named, ready for JSON; ConfigError for what the
    format cannot say.
    """
    kind = shape or rubric.shape
    known, plain = _shape_named(kind), Rubric()
    # a rule counts where it could make a difference
    rules = {"aggregate", "threshold", "least"}
    if not any(one.points > 0 for one in rubric.criteria):
        rules.add("faults_alone")
    faults = any(one.points < 0 for one in rubric.criteria)
    if rubric.aggregate == "sum" or faults:
        rules.add("clip")
    fields = {
        name: getattr(rubric, name)
        for name in rules
        if getattr(rubric, name) != known.rubric.get(name, getattr(plain, name))
    }
    if kind == "plain":
        own = [one.model_dump(exclude_defaults=True) for one in rubric.criteria]
        return {"criteria": own, **fields} if fields else own
    items: Any = [_written(one, kind) for one in rubric.criteria]
    if kind == "harbor":
        fields.pop("clip", None)
        if rubric.aggregate != "sum" and faults:
            raise ConfigError(
                "harbor takes negative weights with the aggregation weighted-sum alone; set "
                "aggregate='sum'."
            )
        scoring: dict[str, Any] = {}
        back = {own: theirs for theirs, own in HARBOR.items()}
        if fields.get("aggregate") in back:
            scoring["aggregation"] = back[fields.pop("aggregate")]
        if "threshold" in fields and "aggregate" not in fields:
            scoring["threshold"] = fields.pop("threshold")
        items = {**rubric.notes, "criterion": items, **({"scoring": scoring} if scoring else {})}
    if fields:
        rest = ", ".join(f"{name}={item}" for name, item in sorted(fields.items()))
        raise ConfigError(
            f"{kind} has a rule of its own and no word for {rest}; write the rubric as plain."
        )
    if kind == "rlcf":
        pairs = [
            [item.pop("question"), item.pop("weight"), *([item] if item else [])] for item in items
        ]
        return {"requirements": pairs}
    return items[0] if kind == "paperbench" and len(items) == 1 else items


def _shape_named(kind: str) -> Shape:
    if kind not in SHAPES:
        raise ConfigError(unknown_name("shape of rubrics", kind, SHAPES))
    return SHAPES[kind]


def _written(one: Criterion, shape: str) -> dict[str, Any]:
    """A criterion under the keys of a shape; ConfigError for what it cannot say."""
    known, same = SHAPES[shape], SHAPES[shape].same
    if not known.signed and one.points < 0 and same is None:
        raise ConfigError(
            f"{shape} has no negative weights, and the criterion {one.text!r:.60} has "
            f"{one.points:g}."
        )
    if same and (getattr(one, same[0]) != same[1] or not known.signed and one.points < 0):
        raise ConfigError(
            f"{shape} has {same[2]} for every criterion, and {one.text!r:.60} has not."
        )
    held = {*known.holds, "notes", "text", "name", *(same or ())[:1]}
    held |= {"points"} if known.points else set()
    lost = one.model_dump(exclude_defaults=True).keys() - held
    if lost:
        raise ConfigError(
            f"{shape} has no word for {', '.join(sorted(lost))} of the criterion {one.text!r:.60}."
        )
    made: dict[str, Any] = {known.text: one.text, **known.write(one)}
    made |= {known.points: one.points} if known.points else {}
    made |= {known.name: one.name} if one.name else {}
    return {**made, **one.notes}


def _document(value: Any, language: str) -> Any:
    """A list or a mapping of what a cell of a table holds, with the texts in a language."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    if isinstance(value, Mapping) and not any(name in value for name in LISTS):
        own = value.get(language) or value.get("en")
        if isinstance(own, Mapping):  # a grader's threshold is one of its scale
            return {**(value if "aggregate" in value else {}), **own}
    return value


def _made(fields: Mapping[str, Any]) -> Rubric:
    try:
        return Rubric(**fields)
    except ValidationError as error:
        raise ConfigError(f"A rubric cannot be read: {problem(error)}") from error


def _items(value: Any) -> tuple[list[Item], dict[str, Any]]:
    """The items of a document as mappings, and what it says beside them."""
    about: dict[str, Any] = {}
    if isinstance(value, Mapping) and "sub_tasks" not in value:
        about = {
            key: item.tolist() if hasattr(item, "tolist") else item for key, item in value.items()
        }
        name = next((name for name in LISTS if isinstance(about.get(name), (list, tuple))), "")
        value, about = (about.pop(name), about) if name else (value, {})
    given = [value] if isinstance(value, (str, Mapping)) else list(value or ())
    return [_item(one, number) for number, one in enumerate(given, 1)], about


def _item(one: Any, number: int) -> Item:
    if isinstance(one, str):
        return {"text": one}
    if isinstance(one, Mapping):
        return one
    if not isinstance(one, Sequence) or len(one) not in (2, 3) or not isinstance(one[0], str):
        raise ConfigError(
            f"Criterion {number} is {one!r:.80}; a text, an object or a pair of question and "
            f"weight is one."
        )
    more = one[2] if len(one) == 3 and isinstance(one[2], Mapping) else {}
    return {**more, "question": one[0], "weight": one[1]}


def _criterion(item: Item, known: Shape, where: str) -> Criterion:
    rest = {key: value for key, value in item.items() if value is not None}
    try:
        fields = {**known.read(rest), **({known.same[0]: known.same[1]} if known.same else {})}
        for name, keys in (
            ("text", (known.text, *TEXTS)),
            ("points", (known.points, *POINTS)),
            ("name", (known.name, *NAMES)),
        ):
            key = next(
                (k for k in keys if k in rest and (name != "text" or isinstance(rest[k], str))),
                None,
            )
            if key is not None and name not in fields:
                fields[name] = str(rest.pop(key)) if name == "name" else rest.pop(key)
        if "text" not in fields:
            raise ConfigError(f"it has no text; give it one of {', '.join(TEXTS)}")
        for key, value in rest.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                raise ConfigError(
                    f"'{key}' holds a number ({value!r}) that no score would depend on; points are "
                    f"one of {', '.join(POINTS)}, and notes go into 'notes'"
                )
        return Criterion(**{**fields, "notes": {**fields.get("notes", {}), **rest}})
    except ValidationError as error:
        raise ConfigError(f"Criterion {where}: {problem(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"Criterion {where}: {str(error).rstrip('.?')}.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"Criterion {where} cannot be read: {type(error).__name__} {error}."
        ) from error


def _rule(about: dict[str, Any]) -> dict[str, Any]:
    """What a document says beside its items: the rule, and notes."""
    scoring = about.pop("scoring", None) or {}
    rule: dict[str, Any] = {name: about.pop(name) for name in RULE if name in about}
    if isinstance(scoring, Mapping) and "aggregation" in scoring:
        aggregation = str(scoring["aggregation"]).replace("_", "-")
        if aggregation not in HARBOR:
            raise ConfigError(unknown_name("aggregation", aggregation, HARBOR))
        rule["aggregate"] = HARBOR[aggregation]
    if isinstance(scoring, Mapping) and "threshold" in scoring:
        rule["threshold"] = scoring["threshold"]
    if rule.get("aggregate") == "sum":
        rule["clip"] = False
    return {**rule, "notes": about}
