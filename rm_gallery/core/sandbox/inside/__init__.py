"""What runs inside a sandboxed process: standard library only, few imports, no knowledge of this package's outside."""
