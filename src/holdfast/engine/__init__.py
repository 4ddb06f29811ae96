"""Turns the effects of one member into deeds, through the doors of whichever world it lives in. Pure."""
