"""What all nodes agree on: metadata as events, applied to an image."""
