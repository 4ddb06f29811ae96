"""The command `holdfast`: what a person uses. One module for one command."""
