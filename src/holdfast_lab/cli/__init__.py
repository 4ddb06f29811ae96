"""`python -m holdfast_lab`: one module for one command."""
