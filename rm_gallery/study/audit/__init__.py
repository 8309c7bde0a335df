"""The trust card of a reward: whether it can be moved by place, length, dress, praise or commands, and how sure that is."""
