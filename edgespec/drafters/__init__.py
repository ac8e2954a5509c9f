"""Who drafts. A drafter is one file here and one line in `edgespec/strategies.py`."""
