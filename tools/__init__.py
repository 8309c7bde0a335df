"""What the project uses on itself."""
