"""Pieces shared by the trainers: configuration, sources, storage, checkpoints, metrics, reports."""
