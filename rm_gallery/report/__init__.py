"""Judging data and reporting what came of it."""
