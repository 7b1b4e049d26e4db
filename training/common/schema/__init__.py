"""Key names and types of the libraries' configuration classes, as JSON."""
