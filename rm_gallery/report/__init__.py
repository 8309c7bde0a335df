"""Answers shown: one renderer for each form of a report."""
