"""A reward tried on completions written by hand and against it, before a training run is launched."""
