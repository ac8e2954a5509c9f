"""What a model is: files and their formats, packs, the default model."""
