"""Sample data and tiny checkpoints, so that a run needs no download: `training.samples.make`."""
