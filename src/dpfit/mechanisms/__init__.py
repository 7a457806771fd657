"""One-shot and interactive releases."""
