"""Makes packs."""
