"""How does a replica get what it lacks?"""
