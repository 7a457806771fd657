"""Readers of earlier versions' plans. Guarantees are kept; most plans cannot run again."""
