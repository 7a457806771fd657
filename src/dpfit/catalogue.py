"""Every algorithm in one table. Shared tests, `dpfit algorithms`, the docs and the audit iterate it."""

from dpfit.core.registry import ENTRIES, Entry, entries, entry, find

__all__ = ["ENTRIES", "Entry", "entries", "entry", "find"]
