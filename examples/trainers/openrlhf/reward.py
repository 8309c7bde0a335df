"""`--reward.remote_url`: OpenRLHF calls `reward_func` with lists of one."""

from __future__ import annotations

from rm_gallery.integrations.openrlhf import openrlhf_reward

reward_func = openrlhf_reward("math_verify_reward")
