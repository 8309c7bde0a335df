"""Is the answer JSON, and does it fit a schema?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

from pydantic import Field, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.blocks import read_json, split_fences
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import KillableRule, answer_text, known, one_score, shown

_MAX_PROBLEMS = 5


@RewardRegistry.register("json_schema")
class JsonSchemaReward(KillableRule):
    """1 when the answer is JSON that fits the schema, `syntax_credit` when it is JSON that does not, else 0.

    The schema is the field `json_schema`, else `schema` in answer.label or metadata; its dialect is that of its
    `$schema`, else draft 2020-12. References to other documents are not fetched. The JSON is the whole answer after a
    thought, or its single fenced block (`allow_fence`); text around it makes it no JSON. Formats such as "date" are
    looked at with `check_formats`. Range [0, 1], higher is better; unscored without a schema (`no_schema`) or with a
    broken one in the sample (`invalid_schema`). `extra_data` lists the first problems with their paths.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"schema"})

    name: str = "json_schema"
    json_schema: dict[str, Any] | bool | None = None
    syntax_credit: float = Field(default=0.0, ge=0, le=1)
    """The score of JSON that does not fit the schema."""
    allow_fence: bool = True
    check_formats: bool = False

    example = Example(
        sample_of(
            "Give name and age as JSON.",
            '{"name": "Ada", "age": 36}',
            '{"name": "Ada", "age": "36"}',
            "Ada is 36.",
            schema={"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["name", "age"]},
        ),
        inputs={"schema": "the field `json_schema`, else `schema` or `json_schema` in `answer.label` or `metadata`"},
    )

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, value: dict[str, Any] | bool | None) -> dict[str, Any] | bool | None:
        if value is not None:
            problem = schema_problem(value)
            if problem:
                raise ConfigError(problem)
        return value

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Read the JSON and check it."""
        schema = self._schema(sample)
        try:
            value = read_json(json_part(answer_text(sample), self.allow_fence))
        except ValueError as error:
            return one_score(self.name, 0.0, f"The answer is no JSON: {error}")
        problems = schema_problems(value, schema, self.check_formats)
        if not problems:
            return one_score(self.name, 1.0, "The answer fits the schema.")
        return one_score(self.name, self.syntax_credit, f"It is JSON, but {problems[0]}", {"problems": problems})

    def _schema(self, sample: DataSample) -> dict[str, Any] | bool:
        schema = self.json_schema if self.json_schema is not None else known(sample, "schema", "json_schema")
        if isinstance(schema, str):
            try:
                schema = read_json(schema)
            except ValueError as error:
                raise Unscored(f"{self.name}: the sample's schema is no JSON: {error}", reason="invalid_schema") from None
        if schema is None:
            raise Unscored(f"{self.name} needs a schema: set the field json_schema or metadata['schema'].", reason="no_schema")
        problem = schema_problem(schema)
        if problem:
            raise Unscored(f"{self.name}: {problem}", reason="invalid_schema")
        found: dict[str, Any] | bool = schema
        return found


def json_part(text: str, allow_fence: bool = True) -> str:
    """The part of an answer that is to be JSON: what follows a thought, without the fence around all of it."""
    text = split_reasoning(text).final.strip()
    if allow_fence and text.startswith(("```", "~~~")):
        blocks, outside = split_fences(text)
        if len(blocks) == 1 and not outside.strip():
            return blocks[0].body
    return text


def schema_problem(schema: Any) -> str | None:
    """Why a value is no JSON Schema, None when it is one."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for

    if not isinstance(schema, dict | bool):
        return f"A schema is an object or a boolean; found {type(schema).__name__}."
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return f"The schema is broken at {error.json_path}: {error.message[:200]}"
    return None


def schema_problems(value: Any, schema: dict[str, Any] | bool, check_formats: bool = False) -> list[str]:
    """The first problems of a JSON value with a valid schema, as "path: message"."""
    from referencing.exceptions import Unresolvable

    try:
        found = list(islice(_errors(json.dumps(schema, sort_keys=True), check_formats)(value), _MAX_PROBLEMS))
    except Unresolvable as error:
        raise Unscored(f"The schema refers to {shown(error.ref)}, which it does not hold.", reason="invalid_schema") from None
    except RecursionError:
        return ["$: nested too deeply to be checked"]
    return [f"{error.json_path[:200]}: {error.message[:200]}" for error in found]


@lru_cache(maxsize=128)
def _errors(schema_text: str, check_formats: bool) -> Callable[[Any], Any]:
    from jsonschema import FormatChecker
    from jsonschema.validators import Draft202012Validator, validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no stubs

    schema = json.loads(schema_text)
    validator = validator_for(schema, default=Draft202012Validator)
    # without a registry the library would fetch references from the network
    errors: Callable[[Any], Any] = validator(
        schema, registry=REGISTRY, format_checker=FormatChecker() if check_formats else None
    ).iter_errors
    return errors
