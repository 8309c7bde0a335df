"""Rubrics as others write them: read into one object and written back, with the arithmetic of their
source.

Sources: HealthBench (arXiv 2505.08775), Rubrics as Rewards (arXiv 2507.17746), DR Tulu (arXiv
2511.19399), RLCF (arXiv 2507.18624), PaperBench (arXiv 2504.01848), and the packages verifiers,
harbor-rewardkit, autorubric and tinker-cookbook.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rm_gallery.core.reward.rubric import Criterion, Level, Rubric
from rm_gallery.core.utils.errors import ConfigError
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
OWN = frozenset(Criterion.model_fields) - {"parts", "levels"}
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
THREE_GRADES = [Level(label=str(grade), value=grade / 2) for grade in range(3)]


@dataclass(frozen=True)
class Shape:
    """A format of rubrics.

    Attributes:
        fits: whether a document's first item, or the document, is in this format.
        item: what an item says beyond text, points and name, as fields of a Criterion; it takes the
            keys it reads.
        write: one criterion in this format; ConfigError for what the format cannot say.
        whole: what the document says of the whole, as fields of a Rubric.
        kept: how the whole document is written around the items.
        rubric: how this format is scored.
    """

    fits: Callable[[Item], bool]
    item: Callable[[dict[str, Any]], dict[str, Any]]
    write: Callable[[Criterion], Any]
    text: str
    points: str = ""
    name: str = ""
    holds: frozenset[str] = frozenset()
    rubric: Mapping[str, Any] = field(default_factory=dict)


# -- items -----------------------------------------------------------------------------------------


def _nothing(item: dict[str, Any]) -> dict[str, Any]:
    return {}


def _tags(item: dict[str, Any]) -> dict[str, Any]:
    return {"tags": list(item.pop("tags", None) or [])}


def _category(item: dict[str, Any]) -> dict[str, Any]:
    category = item.get("category")
    if category is None or any(name in item for name in POINTS):
        return {}
    if str(category).lower() not in CATEGORIES:
        raise ConfigError(unknown_name("category of a criterion", str(category), CATEGORIES))
    return {"points": CATEGORIES[str(category).lower()]}


def _three_grades(item: dict[str, Any]) -> dict[str, Any]:
    return {"levels": THREE_GRADES}


def _percent(item: dict[str, Any]) -> dict[str, Any]:
    return {"scale": (0.0, 100.0), "not_applicable": True}


def _even(labels: Sequence[Any]) -> list[dict[str, Any]]:
    last = max(1, len(labels) - 1)
    return [{"label": str(label), "value": place / last} for place, label in enumerate(labels)]


def _choices(item: dict[str, Any]) -> dict[str, Any]:
    return {"levels": _even(item.pop("choices", None) or [])}


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "negate": bool(item.pop("negate", False)),
        "optional": bool(item.pop("optional", False)),
    }
    kind = item.pop("type", "binary")
    if kind == "likert":
        fields["scale"] = (1.0, float(item.pop("points", 5)))
    elif kind == "numeric":
        fields["scale"] = (float(item.pop("min", 0.0)), float(item.pop("max", 1.0)))
    elif kind == "rubric":
        levels = list(item.pop("levels"))
        fields["levels"] = [
            {**one, "label": str(n), "description": one["label"]}
            for n, one in enumerate(_even(levels))
        ]
    elif kind != "binary":
        raise ConfigError(
            unknown_name(
                "type of a criterion", str(kind), ("binary", "likert", "numeric", "rubric")
            )
        )
    # an answer by a number has `points` of its own, so the weight is its own key
    return {**fields, "points": item.pop("weight", 1.0)}


def _options(item: dict[str, Any]) -> dict[str, Any]:
    options = item.pop("options", None) or []
    levels = [
        {"label": str(one["label"]), "value": one["value"]} for one in options if not one.get("na")
    ]
    levels.sort(key=lambda one: float(one["value"]))
    return {
        "levels": levels,
        "not_applicable": not options or any(one.get("na") for one in options),
    }


def _own(item: dict[str, Any]) -> dict[str, Any]:
    own = {name: item.pop(name) for name in OWN & item.keys()}
    levels = item.pop("levels", None) or []
    own["levels"] = _even(levels) if all(isinstance(one, str) for one in levels) else levels
    parts = item.pop("parts", None) or []
    own["parts"] = [
        _criterion(_item(part, number), SHAPES["plain"], f"parts.{number}")
        for number, part in enumerate(parts, 1)
    ]
    return own


def _task(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "parts": [
            _criterion(part, SHAPES["paperbench"], "sub_tasks")
            for part in item.pop("sub_tasks", None) or []
        ]
    }


# -- and back --------------------------------------------------------------------------------------


def _written(one: Criterion, shape: str) -> dict[str, Any]:
    """Text, points and name under the keys of a shape; ConfigError for what it cannot say."""
    known = SHAPES[shape]
    plain = Criterion(text=one.text)
    fields = {
        name for name in Criterion.model_fields if getattr(one, name) != getattr(plain, name)
    } - {"notes", "text"}
    lost = fields - known.holds - ({"points"} if known.points else set()) - {"name"}
    if lost:
        raise ConfigError(
            f"{shape} has no word for {', '.join(sorted(lost))} of the criterion {one.text!r:.60}."
        )
    made: dict[str, Any] = {known.text: one.text}
    made |= {known.points: one.points} if known.points else {}
    made |= {known.name or "title": one.name} if one.name else {}
    return {**made, **one.notes}


def _signed(one: Criterion, shape: str) -> dict[str, Any]:
    if one.points < 0:
        raise ConfigError(
            f"{shape} has no negative weights, and the criterion {one.text!r:.60} has "
            f"{one.points:g}."
        )
    return _written(one, shape)


def _forms(one: Criterion, shape: str, wanted: bool, what: str) -> dict[str, Any]:
    if not wanted:
        raise ConfigError(f"{shape} has {what} for every criterion, and {one.text!r:.60} has not.")
    return _written(one, shape)


def _to_harbor(one: Criterion) -> dict[str, Any]:
    made = {
        **_written(one, "harbor"),
        **{name: True for name in ("negate", "optional") if getattr(one, name)},
    }
    if one.levels:
        return {
            **made,
            "type": "rubric",
            "levels": [level.description or level.label for level in one.levels],
        }
    if one.scale is None:
        return {**made, "type": "binary"}
    low, high = one.scale
    if low == 1 and high == int(high):
        return {**made, "type": "likert", "points": int(high)}
    return {**made, "type": "numeric", "min": low, "max": high}


def _to_autorubric(one: Criterion) -> dict[str, Any]:
    made = _written(one, "autorubric")
    options: list[dict[str, Any]] = [
        {"label": level.label, "value": level.value} for level in one.levels
    ]
    if options and one.not_applicable:
        options.append({"label": "N/A", "value": 0.0, "na": True})
    return {**made, "options": options} if options else made


def _to_task(one: Criterion) -> dict[str, Any]:
    return {**_signed(one, "paperbench"), "sub_tasks": [_to_task(part) for part in one.parts]}


def _to_own(one: Criterion) -> dict[str, Any]:
    return one.model_dump(exclude_defaults=True)


SHAPES: dict[str, Shape] = {
    "paperbench": Shape(
        lambda item: "sub_tasks" in item,
        _task,
        _to_task,
        "requirements",
        "weight",
        "id",
        frozenset({"parts"}),
    ),
    "harbor": Shape(
        lambda item: item.get("type") in ("binary", "likert", "numeric", "rubric"),
        _typed,
        _to_harbor,
        "description",
        "weight",
        "name",
        frozenset({"levels", "scale", "negate", "optional"}),
    ),
    "tinker": Shape(
        lambda item: "rubric_str" in item,
        lambda item: {"scale": (0.0, 1.0)},
        lambda one: _forms(one, "tinker", one.scale == (0.0, 1.0), "a number from 0 to 1"),
        "rubric_str",
        holds=frozenset({"scale"}),
    ),
    "rlcf": Shape(
        lambda item: "question" in item,
        _percent,
        lambda one: _forms(
            one, "rlcf", one.scale == (0.0, 100.0) and one.points >= 0, "a number from 0 to 100"
        ),
        "question",
        "weight",
        holds=frozenset({"scale", "not_applicable"}),
    ),
    "verifiers": Shape(
        lambda item: "choices" in item,
        _choices,
        lambda one: {
            **_signed(one, "verifiers"),
            "choices": [level.label for level in one.levels] or ["no", "yes"],
        },
        "text",
        "weight",
        "name",
        frozenset({"levels"}),
    ),
    "autorubric": Shape(
        lambda item: "requirement" in item,
        _options,
        _to_autorubric,
        "requirement",
        "weight",
        "name",
        frozenset({"levels", "not_applicable"}),
        {"faults_alone": "deducted"},
    ),
    "dr_tulu": Shape(
        lambda item: (
            "description" in item
            and (item.get("weight") in (-1, 1) or "weight" not in item)
            and _kind(item)
        ),
        _three_grades,
        lambda one: _forms(one, "dr_tulu", one.levels == THREE_GRADES, "the grades 0, 1 and 2"),
        "description",
        "weight",
        "title",
        frozenset({"levels"}),
        {"least": 1.0, "clip": False},
    ),
    "rar": Shape(
        lambda item: "description" in item,
        _category,
        lambda one: _signed(one, "rar"),
        "description",
        "weight",
        "title",
    ),
    "healthbench": Shape(
        lambda item: "criterion" in item and "points" in item,
        _tags,
        lambda one: {**_written(one, "healthbench"), "tags": one.tags},
        "criterion",
        "points",
        holds=frozenset({"tags"}),
        rubric={"clip": False},
    ),
    "plain": Shape(lambda item: True, _own, _to_own, "text", "points", "name"),
}
"""Each format by its name; the first that fits a document is its own."""


def _kind(item: Item) -> bool:
    return (
        item.get("type") in ("persistent", "active", "static", "positive", "negative")
        or item.get("weight") == -1
    )


# -- documents -------------------------------------------------------------------------------------


def read_rubric(value: Any, shape: str | None = None) -> Rubric:
    """A rubric from what holds one: a file (.json, .jsonl, .yaml, .toml), a list of texts or of
    items, or a whole document.

    The format is found by its keys unless `shape` names it: healthbench, rar, dr_tulu, rlcf,
    verifiers, harbor, autorubric, paperbench, tinker or plain. Raises ConfigError that names the
    criterion and the key for an unknown key with a number in it, which could be points.
    """
    if isinstance(value, Rubric):
        return value
    if isinstance(value, Path):
        return read_rubric(_of_file(value), shape)
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:  # a cell of a table that holds a list
            value = json.loads(value)
        except ValueError:
            value = [value]
    if (
        isinstance(value, Mapping)
        and set(value) <= set(Rubric.model_fields)
        and "criteria" in value
        and shape is None
    ):
        rubric = read_rubric(value["criteria"])
        return _made(
            {
                **{name: getattr(rubric, name) for name in Rubric.model_fields},
                **value,
                "criteria": rubric.criteria,
            }
        )
    items, about = _items(value)
    kind = shape or next(
        (name for name, known in SHAPES.items() if items and known.fits(items[0])), "plain"
    )
    if kind not in SHAPES:
        raise ConfigError(unknown_name("shape of rubrics", kind, SHAPES))
    if kind == "rar" and any(SHAPES["dr_tulu"].fits(item) for item in items):
        kind = "dr_tulu"
    known = SHAPES[kind]
    criteria = [_criterion(item, known, str(number)) for number, item in enumerate(items, 1)]
    return _made({**known.rubric, **_of_the_whole(about), "criteria": criteria, "shape": kind})


def write_rubric(rubric: Rubric, shape: str | None = None) -> Any:
    """A rubric in a format, its own unless one is named, ready for JSON; ConfigError for what the
    format cannot say.
    """
    kind = shape or rubric.shape
    if kind not in SHAPES:
        raise ConfigError(unknown_name("shape of rubrics", kind, SHAPES))
    known = SHAPES[kind]
    plain = Rubric()
    # a rule counts where it could make a difference
    rules = {"aggregate", "threshold", "least"}
    rules |= set() if any(one.points > 0 for one in rubric.criteria) else {"faults_alone"}
    rules |= (
        {"clip"}
        if rubric.aggregate == "sum" or any(one.points < 0 for one in rubric.criteria)
        else set()
    )
    fields = {
        name: getattr(rubric, name)
        for name in rules
        if getattr(rubric, name) != known.rubric.get(name, getattr(plain, name))
    }
    items = [known.write(one) for one in rubric.criteria]
    if kind == "plain":
        return {"criteria": items, **fields} if fields else items
    if kind == "harbor":
        fields.pop("clip", None)
        if rubric.aggregate != "sum" and any(one.points < 0 for one in rubric.criteria):
            raise ConfigError(
                "harbor takes negative weights with the aggregation weighted-sum alone; set "
                "aggregate='sum'."
            )
        back = {own: theirs for theirs, own in HARBOR.items()}
        scoring = {"aggregation": back.get(rubric.aggregate)} if "aggregate" in fields else {}
        scoring |= {"threshold": fields["threshold"]} if "threshold" in fields else {}
        fields = {
            name: item
            for name, item in fields.items()
            if name not in ("aggregate", "threshold") or None in scoring.values()
        }
        items = {**rubric.notes, "criterion": items, **({"scoring": scoring} if scoring else {})}  # type: ignore[assignment]
    if fields:
        rest = ", ".join(f"{name}={item}" for name, item in sorted(fields.items()))
        raise ConfigError(
            f"{kind} has a rule of its own and no word for {rest}; write the rubric as plain."
        )
    if kind == "rlcf":
        return {
            "requirements": [
                [item.pop("question"), item.pop("weight"), *([item] if item else [])]
                for item in items
            ]
        }
    if kind == "paperbench":
        return items[0] if len(items) == 1 else items
    return items


def _made(fields: Mapping[str, Any]) -> Rubric:
    try:
        return Rubric(**fields)
    except ValidationError as error:
        raise ConfigError(f"A rubric cannot be read: {_problem(error)}.") from error


def _problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return ": ".join(
        part
        for part in (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "))
        if part
    )


def _items(value: Any) -> tuple[list[Item], dict[str, Any]]:
    """The items of a document as mappings, and what it says beside them."""
    about: dict[str, Any] = {}
    if isinstance(value, Mapping) and "sub_tasks" not in value:
        name = next(
            (
                name
                for name in LISTS
                if isinstance(value.get(name), (list, tuple)) or hasattr(value.get(name), "tolist")
            ),
            "",
        )
        if name:
            about = {key: item for key, item in value.items() if key != name}
            value = value[name].tolist() if hasattr(value[name], "tolist") else value[name]
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
    return {
        **(one[2] if len(one) == 3 and isinstance(one[2], Mapping) else {}),
        "question": one[0],
        "weight": one[1],
    }


def _criterion(item: Item, known: Shape, where: str) -> Criterion:
    rest = {key: value for key, value in item.items() if value is not None}
    try:
        fields = known.item(rest)
        texts = [
            name for name in dict.fromkeys((known.text, *TEXTS)) if isinstance(rest.get(name), str)
        ]
        if not texts and "text" not in fields:
            raise ConfigError(f"it has no text; give it one of {', '.join(TEXTS)}")
        if texts:
            fields["text"] = rest.pop(texts[0])
        for field_name, spellings in (
            ("points", (known.points, *POINTS)),
            ("name", (known.name, *NAMES)),
        ):
            spelling = next(
                (name for name in dict.fromkeys(spellings) if name and name in rest), None
            )
            if spelling is not None and field_name not in fields:
                fields[field_name] = (
                    rest.pop(spelling) if field_name == "points" else str(rest.pop(spelling))
                )
        numbers = [
            name
            for name, value in rest.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if numbers:
            raise ConfigError(
                f"'{numbers[0]}' holds a number ({rest[numbers[0]]!r}) that no score would depend "
                f"on; points are one of {', '.join(POINTS)}, and notes go into 'notes'"
            )
        fields["notes"] = {**fields.get("notes", {}), **rest}
        return Criterion(**fields)
    except ValidationError as error:
        raise ConfigError(f"Criterion {where}: {_problem(error)}.") from error
    except ConfigError as error:
        raise ConfigError(f"Criterion {where}: {str(error).rstrip('.?')}.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"Criterion {where} cannot be read: {type(error).__name__} {error}."
        ) from error


def _of_the_whole(about: dict[str, Any]) -> dict[str, Any]:
    """What a document says beside its items: the rule, and notes."""
    scoring = about.pop("scoring", None) or {}
    settings: dict[str, Any] = {
        name: about.pop(name) for name in ("aggregate", "threshold", "clip") if name in about
    }
    if isinstance(scoring, Mapping) and "aggregation" in scoring:
        aggregation = str(scoring["aggregation"]).replace("_", "-")
        if aggregation not in HARBOR:
            raise ConfigError(unknown_name("aggregation", aggregation, HARBOR))
        settings["aggregate"] = HARBOR[aggregation]
    if isinstance(scoring, Mapping) and "threshold" in scoring:
        settings["threshold"] = scoring["threshold"]
    if settings.get("aggregate") == "sum":
        settings["clip"] = False
    return {**settings, "notes": about}


def _of_file(path: Path) -> Any:
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The rubric {path} cannot be read: {type(error).__name__}.") from error
    try:
        if path.suffix == ".toml":
            return _toml(text)
        if path.suffix in (".yaml", ".yml"):
            return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(
            f"The rubric {path} is no {path.suffix[1:] or 'JSON'}: {type(error).__name__} {error}."
        ) from error


def _toml(text: str) -> Any:
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise ConfigError(
            "A rubric in TOML needs Python 3.11, or tomli: pip install tomli."
        ) from error
    return toml.loads(text)
