"""`--custom-rm-path my_rewards.math`: slime awaits it with a sample or a group."""

from __future__ import annotations

from rm_gallery.integrations.slime import slime_reward

math = slime_reward("math_verify_reward")  # the reference is the sample's label
