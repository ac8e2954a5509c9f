"""The bench: strategies against plain decoding, on prompts of eight kinds."""
