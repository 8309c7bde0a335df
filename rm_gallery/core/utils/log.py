"""The library's own logger, whose lines a sink can tell from others."""

from __future__ import annotations

from loguru import logger as _logger

logger = _logger.bind(library="rm_gallery")
