"""What does a partition hold?"""
