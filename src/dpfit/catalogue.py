"""All algorithms in one table, for shared tests, `dpfit algorithms`, docs and the audit."""

from dpfit.core.registry import ENTRIES, Entry, entries, entry, find

__all__ = ["ENTRIES", "Entry", "entries", "entry", "find"]
