"""Readers of plans that earlier versions wrote. They keep the guarantee; most of them cannot run again."""
