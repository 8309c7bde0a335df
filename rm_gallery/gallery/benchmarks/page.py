"""What people read about a benchmark: the fields of NAME.yaml beside its module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import read_file
from rm_gallery.core.utils.names import check_known

REQUIRED = ("measures", "source", "licence", "formula", "layout", "traps")
"""Fields that every file holds; the others are for what not every benchmark has."""


class Page(BaseModel):
    """The texts and tables of a benchmark's page; every field is empty where there is no file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measures: str = Field(default="", description="what a good figure says about a reward")
    source: str = Field(default="", description="the paper or repository the rule is taken from")
    licence: str = Field(default="", description="the licence of the data, as its source states it")
    formula: str = Field(default="", description="the rule as a formula")
    layout: Mapping[str, str] = Field(
        default={}, description="the published columns, and what each holds"
    )
    traps: tuple[str, ...] = Field(
        default=(), description="what is known to go wrong with the data or the rule, a text each"
    )
    chance_note: str = Field(default="", description="why chance is no single figure")
    sizes: Mapping[str, int] = Field(
        default={}, description="the published number of rows by subset"
    )
    published: tuple[tuple[str, str, str], ...] = Field(
        default=(), description="results to compare with: who, figure, source"
    )
    peers: tuple[tuple[str, str], ...] = Field(
        default=(), description="who publishes figures by another rule, and how it differs"
    )
    length: Mapping[str, tuple[int, float, float]] = Field(
        default={},
        description=(
            "what length alone reaches on published rows: by subset the number of rows, the longest "
            "and the shortest answer in percent"
        ),
    )


@cache
def read_page(path: Path) -> Page:
    """The page in a YAML file, read once; an empty one where there is no file, as beside a notebook.

    Raises:
        ConfigError: one line with the file, the field that does not fit and the next step.
    """
    if not path.is_file():
        return Page()
    fields = read_file(path)
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} holds no fields; start it with measures: and a text.")
    known = Page.model_fields
    check_known("field", fields, known, f"{path}: ")
    for name in REQUIRED:
        if not fields.get(name):
            raise ConfigError(
                f"{path}: the field '{name}' is missing; add {known[name].description}."
            )
    try:
        return Page.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        wanted = known[str(first["loc"][0])].description
        raise ConfigError(
            f"{path}: the field '{where}' does not fit ({first['msg']}); give {wanted}."
        ) from error
