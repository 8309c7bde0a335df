"""Running code nobody has vouched for: runners, limits, code tests, SQL."""
