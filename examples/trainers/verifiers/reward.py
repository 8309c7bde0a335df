"""One object for a v1 task (`fn = "reward.py:correct"`) and for a v0 rubric."""

from __future__ import annotations

from rm_gallery.integrations.verifiers import verifiers_reward

correct = verifiers_reward("math_verify_reward", reference="answer", name="correct")
