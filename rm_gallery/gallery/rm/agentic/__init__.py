"""What an agent left behind: checks of it, and judges that open it and decide by what they find."""
