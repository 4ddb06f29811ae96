"""The command `holdfast`, for users and operators: one module for one command."""
