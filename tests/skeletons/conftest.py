"""Skeletons are imported once, as ``skeletons.<module>``, not under a second name."""

collect_ignore_glob = ["[!t]*.py"]
