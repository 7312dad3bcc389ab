"""Dialects: packets of one protocol into the words of the core, and back."""
