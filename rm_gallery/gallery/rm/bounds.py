"""Bounds that the settings of several rules have, and the forms of a text that matter to them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rm_gallery.core.text.canonical import Form

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]
"""A score on the scale from worst to best."""
Penalty = Annotated[float, Field(ge=-1, le=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A tolerance, a rate or a price."""
AS_WRITTEN: tuple[Form, ...] = ("thought", "characters")
"""A thought counts as any other text does, and so does every character."""
