"""How do several entries change together?"""
