"""Security: who somebody is, and what only the right ones can read."""
