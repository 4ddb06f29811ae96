"""What Holdfast costs and does per second, beside Redis on the same machine: `python -m bench`."""
