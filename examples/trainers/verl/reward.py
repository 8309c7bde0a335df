"""`reward.custom_reward_function.path`: verl calls `compute_score` with one response."""

from __future__ import annotations

from rm_gallery.integrations.verl import verl_reward

compute_score = verl_reward("math_verify_reward", prompt="question")
