"""What was seen of a training run, in words for a terminal."""

from __future__ import annotations

import textwrap

from rm_gallery.gallery.benchmarks.figures import plain_line
from rm_gallery.train.watch import Watched


def watched_lines(found: Watched) -> list[str]:
    """The findings with their completions, then how every reward moved; the verdict first."""
    warned = [finding for finding in found.findings if finding.severity == "warn"]
    verdict = f"{len(warned)} finding{'s' if len(warned) != 1 else ''}" if warned else "nothing found"
    size = f"{found.n_completions:,} completions to {found.n_groups:,} prompts" if found.n_completions else "charts only"
    lines = [
        f"{verdict}: {found.name}, {size}, steps {found.steps[0]:g} to {found.steps[1]:g} "
        f"(early up to {found.early[1]:g}, late from {found.late[0]:g})"
    ]
    for finding in found.findings:
        lines += ["", f"{finding.severity.upper()} {finding.kind}: {finding.text}"]
        for example in finding.examples:
            lines += _example(example)
    if found.moved:
        width = max(len(name) for name in found.moved)
        lines += ["", f"{'reward':<{width}}    early     late  {'change':<28}with length, late".rstrip()]
        for name, moved in found.moved.items():
            change = f"  {'too few groups to tell':<46}"
            if moved is not None:
                ci = f"[{moved.interval.low:+.3g}, {moved.interval.high:+.3g}]"
                change = f"{moved.early:9.3g}{moved.late:9.3g}  {f'{moved.change:+.3g} {ci}':<28}"
            link = found.by_length.get(name)
            told = "" if link is None else f"{link.correlation:+.2f} [{link.interval.low:+.2f}, {link.interval.high:+.2f}]"
            lines.append(f"{name:<{width}}{change}{told}".rstrip())
    return [plain_line(line) for line in (*lines, *(f"note: {note}" for note in found.notes))]


def _example(example: dict[str, object]) -> list[str]:
    rewards = example["rewards"]
    assert isinstance(rewards, dict)
    said = ", ".join(f"{name} {'none' if value is None else format(value, '.3g')}" for name, value in rewards.items())
    text = textwrap.shorten(str(example["completion"]), 200, placeholder=" …") or "(empty)"
    return [f"  step {example['step']:g}, row {example['row']}: {said}", f"    {text}"]
