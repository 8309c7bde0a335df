"""Judges that act: they open what an agent left, run it, and decide by what they find."""
