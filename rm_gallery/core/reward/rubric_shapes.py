"""Rubrics as others write them: read into one object and written back, with the arithmetic of their
source.

Sources: HealthBench (arXiv 2505.08775), Rubrics as Rewards (arXiv 2507.17746), DR Tulu (arXiv
2511.19399), RLCF (arXiv 2507.18624), PaperBench (arXiv 2504.01848), and the packages verifiers,
harbor-rewardkit, autorubric and tinker-cookbook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.reward.rubric import Criterion, Level, Rubric, even, refused
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.names import check_known, unknown_name

Item = Mapping[str, Any]
Fields = dict[str, Any]
KEYS = {
    "text": (
        "text",
        "criterion",
        "requirement",
        "description",
        "rubric_str",
        "rubric",
        "question",
        "requirements",
    ),
    "points": ("points", "weight", "score", "importance"),
    "name": ("name", "title", "id"),
}
"""What every criterion has, and the keys under which a format may hold it."""
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
WORDS = {own: theirs for theirs, own in HARBOR.items()}
SCORING = {"aggregate": "aggregation", "threshold": "threshold"}
"""Harbor's words for the rules of a rubric."""
TYPES = ("binary", "likert", "numeric", "rubric")
TULU = ("persistent", "active", "static", "positive", "negative")
"""Types of the criteria of DR Tulu."""
RULE = ("aggregate", "threshold", "clip")
TOO_LIKE = 0.8
"""A key that is as like a field as this, and holds what it could, is misspelt and no note."""


class Shape(NamedTuple):
    """A format of rubrics.

    Attributes:
        text, points, name: the keys of what every criterion has.
        marks: keys of its first item by which a document is known to be in this format; the text's
            unless others are named.
        holds: other fields of a Criterion that the format has a word for.
        read: what an item says beyond text, points and name, as fields of a Criterion; it takes the
            keys it reads.
        write: the same keys of a criterion.
        same: what all its criteria have alike, as a field of a Criterion.
        called: what that is called.
        signed: whether points may be negative.
        rubric: how this format is scored.
        fits: what its items have to be besides.
    """

    text: str
    points: str = "weight"
    name: str = "title"
    marks: Sequence[str] = ()
    holds: Sequence[str] = ()
    read: Callable[[Fields], Fields] = lambda item: {}
    write: Callable[[Criterion], Fields] = lambda one: {}
    same: Item = {}
    called: str = ""
    signed: bool = True
    rubric: Item = {}
    fits: Callable[[Sequence[Item]], bool] = lambda items: True


# -- items -----------------------------------------------------------------------------------------


def _category(item: Fields) -> Fields:
    if "category" not in item or any(name in item for name in KEYS["points"]):
        return {}
    category = str(item["category"])
    if category.lower() not in CATEGORIES:
        raise ConfigError(unknown_name("category of a criterion", category, CATEGORIES))
    return {"points": CATEGORIES[category.lower()]}


def _typed(item: Fields) -> Fields:
    kind = item.pop("type", "binary")
    check_known("type of a criterion", [kind], TYPES)
    fields: Fields = {name: bool(item.pop(name, 0)) for name in ("negate", "optional")}
    if kind == "likert":
        fields["scale"] = (1.0, item.pop("points", 5))
    elif kind == "numeric":
        fields["scale"] = (item.pop("min", 0.0), item.pop("max", 1.0))
    elif kind == "rubric":
        fields["levels"] = [
            {**one, "label": str(n), "description": one["label"]}
            for n, one in enumerate(even(item.pop("levels")))
        ]
    # an answer by a number has `points` of its own, so the weight is its own key
    return {**fields, "points": item.pop("weight", 1.0)}


def _to_typed(one: Criterion) -> Fields:
    made: Fields = {"type": "binary"}
    if one.levels:
        levels = [level.description or level.label for level in one.levels]
        made = {"type": "rubric", "levels": levels}
    elif one.scale is not None:
        low, high = one.scale
        made = {"type": "numeric", "min": low, "max": high}
        if low == 1 and high == int(high):
            made = {"type": "likert", "points": int(high)}
    return {n: True for n in ("negate", "optional") if getattr(one, n)} | made


def _options(item: Fields) -> Fields:
    options = item.pop("options", None) or []
    levels = [{"label": str(o["label"]), "value": o["value"]} for o in options if not o.get("na")]
    return {
        "levels": sorted(levels, key=lambda one: float(one["value"])),
        "not_applicable": len(levels) < len(options) or not options,
    }


def _to_options(one: Criterion) -> Fields:
    if not one.levels:
        return {}
    options = [level.model_dump(include={"label", "value"}) for level in one.levels]
    return {"options": options + [{"label": "N/A", "value": 0.0, "na": True}] * one.not_applicable}


def _own(item: Fields) -> Fields:
    fields = {name: item.pop(name) for name in Criterion.model_fields if name in item}
    _not_misspelt(
        [name for name, value in item.items() if isinstance(value, (bool, list))],
        Criterion.model_fields,
        "there is no field '{}'; did you mean {}.",
    )
    return fields | {"parts": _criteria("plain", fields.get("parts") or [], "parts.")}


def _not_misspelt(names: Sequence[str], known: Collection[str], problem: str) -> None:
    for name in names:
        if near := get_close_matches(name, known, 1, TOO_LIKE):
            raise ConfigError(problem.format(name, near[0]))


def _of_one_point(items: Sequence[Item]) -> bool:
    return any(
        "description" in item
        and item.get("weight", 1) in ((-1, 1) if item.get("type") in TULU else (-1,))
        for item in items
    )


SHAPES: dict[str, Shape] = {
    "paperbench": Shape(
        "requirements",
        name="id",
        marks=["sub_tasks"],
        holds=["parts"],
        read=lambda item: {
            "parts": _criteria("paperbench", item.pop("sub_tasks", None) or [], "parts.")
        },
        write=lambda one: {"sub_tasks": [_written(part, "paperbench") for part in one.parts]},
        signed=False,
    ),
    "harbor": Shape(
        "description",
        name="name",
        marks=["type"],
        holds=["levels", "scale", "negate", "optional"],
        read=_typed,
        write=_to_typed,
        fits=lambda items: items[0]["type"] in TYPES,
    ),
    "tinker": Shape(
        "rubric_str",
        points="",
        same={"scale": (0.0, 1.0)},
        called="a number from 0 to 1",
    ),
    "rlcf": Shape(
        "question",
        holds=["not_applicable"],
        read=lambda item: {"not_applicable": True},
        same={"scale": (0.0, 100.0)},
        called="a number from 0 to 100",
        signed=False,
    ),
    "verifiers": Shape(
        "text",
        name="name",
        marks=["choices"],
        holds=["levels"],
        read=lambda item: {"levels": even(item.pop("choices", None) or [])},
        write=lambda one: {"choices": [level.label for level in one.levels] or ["no", "yes"]},
        signed=False,
    ),
    "autorubric": Shape(
        "requirement",
        name="name",
        holds=["levels", "not_applicable"],
        read=_options,
        write=_to_options,
        rubric={"faults_alone": "deducted"},
    ),
    "dr_tulu": Shape(
        "description",
        same={"levels": [Level(**one) for one in even(range(3))]},
        called="the grades 0, 1 and 2",
        rubric={"least": 1.0, "clip": False},
        fits=_of_one_point,
    ),
    "rar": Shape("description", read=_category, signed=False),
    "healthbench": Shape(
        "criterion",
        "points",
        marks=["criterion", "points"],
        holds=["tags"],
        read=lambda item: {"tags": list(item.pop("tags", None) or [])},
        write=lambda one: {"tags": one.tags},
        rubric={"clip": False},
    ),
    "plain": Shape("text", "points", "name", read=_own),
}
"""Each format by its name; the first that fits a document is its own, plain where none does."""


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
        with refused(f"{value}: "):
            return read_rubric(content, shape, language)
    value, own = _document(value, language), Rubric.model_fields.keys()
    if shape is None and isinstance(value, Mapping) and "criteria" in value and value.keys() <= own:
        rubric = read_rubric(value["criteria"])  # one of ours that was dumped
        return _made({**dict(rubric), **value, "criteria": rubric.criteria})
    items, about = _items(value)
    kind = shape or _kind_of(items)
    if kind == "rar" and SHAPES["dr_tulu"].fits(items):
        kind = "dr_tulu"
    known = _shape_named(kind)
    if kind == "plain":
        others = [name for name in about if name not in RULE]
        _not_misspelt(others, RULE, "There is no field '{}' of a rubric. Did you mean {}?")
    criteria = _criteria(kind, items)
    return _made({**known.rubric, **_rule(about), "criteria": criteria, "shape": kind})


def _kind_of(items: Sequence[Item]) -> str:
    for kind, known in SHAPES.items():
        if items and items[0].keys() >= {*(known.marks or [known.text])} and known.fits(items):
            return kind
    return "plain"


def rubric_of_setting(value: Any) -> Rubric:
    """`read_rubric` for a field of a reward or grader."""
    return read_rubric(value)


def write_rubric(rubric: Rubric, shape: str | None = None) -> Any:
    """A rubric in a format, its own unless one is named, ready for JSON; ConfigError for what the
    format cannot say.
    """
    kind = shape or rubric.shape
    known = _shape_named(kind)
    usual = Rubric(**known.rubric)
    gains = any(one.points > 0 for one in rubric.criteria)
    faults = any(one.points < 0 for one in rubric.criteria)
    # a rule counts where it could make a difference
    rules = {"faults_alone": not gains, "clip": rubric.aggregate == "sum" or faults}
    fields: Fields = {
        name: getattr(rubric, name)
        for name in (*RULE, "least", "faults_alone")
        if rules.get(name, True) and getattr(rubric, name) != getattr(usual, name)
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
        items = {**rubric.notes, "criterion": items}
        if rubric.aggregate in WORDS:
            rules_said = {name: fields.pop(name) for name in RULE if name in fields}
            scoring = {SCORING[name]: WORDS.get(own, own) for name, own in rules_said.items()}
            items |= {"scoring": scoring} if scoring else {}
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
    check_known("shape of rubrics", [kind], SHAPES)
    return SHAPES[kind]


def _written(one: Criterion, shape: str) -> Fields:
    """A criterion under the keys of a shape; ConfigError for what it cannot say."""
    known = SHAPES[shape]
    held = {*known.holds, *known.same, "notes", "text", "name", known.points and "points"}
    if one.points < 0 and not known.signed:
        raise ConfigError(
            f"{shape} has no negative weights, and the criterion {one.text!r:.60} has "
            f"{one.points:g}."
        )
    if any(getattr(one, name) != value for name, value in known.same.items()):
        raise ConfigError(
            f"{shape} has {known.called} for every criterion, and {one.text!r:.60} has not."
        )
    if lost := one.model_dump(exclude_defaults=True).keys() - held:
        raise ConfigError(
            f"{shape} has no word for {', '.join(sorted(lost))} of the criterion {one.text!r:.60}."
        )
    made: Fields = {known.text: one.text, **known.write(one)}
    made |= {known.points: one.points} if known.points else {}
    made |= {known.name: one.name} if one.name else {}
    return {**made, **one.notes}


def _document(value: Any, language: str) -> Any:
    """A list or a mapping of what a cell of a table holds, with the texts in a language."""
    value = _plain(value)
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    if isinstance(value, Mapping) and not any(name in value for name in LISTS):
        texts = value.get(language) or value.get("en")
        if isinstance(texts, Mapping):  # a grader's threshold is one of its scale
            return {**(value if "aggregate" in value else {}), **texts}
    return value


def _plain(value: Any) -> Any:
    """A list of what an array of a table holds."""
    return value.tolist() if hasattr(value, "tolist") else value


def _made(fields: Item) -> Rubric:
    with refused("A rubric cannot be read: "):
        return Rubric(**fields)


def _items(value: Any) -> tuple[list[Item], Fields]:
    """The items of a document as mappings, and what it says beside them."""
    about: Fields = {}
    if isinstance(value, Mapping) and "sub_tasks" not in value:
        whole = {key: _plain(item) for key, item in value.items()}
        if name := next((n for n in LISTS if isinstance(whole.get(n), (list, tuple))), ""):
            value, about = whole.pop(name), whole
    given = [value] if isinstance(value, (str, Mapping)) else value or ()
    return [_item(one, number) for number, one in enumerate(given, 1)], about


def _item(one: Any, number: int) -> Item:
    match one:
        case str():
            return {"text": one}
        case Mapping():
            return one
        case [str() as question, weight]:
            return {"question": question, "weight": weight}
        case [str() as question, weight, more]:
            notes = more if isinstance(more, Mapping) else {}
            return {**notes, "question": question, "weight": weight}
    raise ConfigError(
        f"Criterion {number} is {one!r:.80}; a text, an object or a pair of question and weight is "
        f"one."
    )


def _criteria(shape: str, items: Sequence[Any], where: str = "") -> list[Criterion]:
    return [
        _criterion(_item(one, number), SHAPES[shape], f"{where}{number}")
        for number, one in enumerate(items, 1)
    ]


def _criterion(item: Item, known: Shape, where: str) -> Criterion:
    rest = {key: value for key, value in item.items() if value is not None}
    try:
        with refused(f"Criterion {where}: "):
            fields = {**known.read(rest), **known.same}
            for name, keys in KEYS.items():
                kind = str if name == "text" else object
                for key in () if name in fields else (getattr(known, name), *keys):
                    if key in rest and name not in fields and isinstance(rest[key], kind):
                        fields[name] = str(rest.pop(key)) if name == "name" else rest.pop(key)
            if "text" not in fields:
                raise ConfigError(f"it has no text; give it one of {', '.join(KEYS['text'])}.")
            for key, value in rest.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    raise ConfigError(
                        f"'{key}' holds a number ({value!r}) that no score would depend on; points "
                        f"are one of {', '.join(KEYS['points'])}, and notes go into 'notes'."
                    )
            return Criterion(**{**fields, "notes": {**fields.get("notes", {}), **rest}})
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"Criterion {where} cannot be read: {type(error).__name__} {error}."
        ) from error


def _rule(about: Fields) -> Fields:
    """What a document says beside its items: the rule, and notes."""
    scoring = about.pop("scoring", None)
    rule: Fields = {name: about.pop(name) for name in RULE if name in about}
    if isinstance(scoring, Mapping):
        if "threshold" in scoring:
            rule["threshold"] = scoring["threshold"]
        if "aggregation" in scoring:
            aggregation = str(scoring["aggregation"]).replace("_", "-")
            check_known("aggregation", [aggregation], HARBOR)
            rule["aggregate"] = HARBOR[aggregation]
    if rule.get("aggregate") == "sum":
        rule["clip"] = False
    return {**rule, "notes": about}
