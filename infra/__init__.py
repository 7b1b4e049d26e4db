"""The Google Cloud half: one module per room, one component per module."""
