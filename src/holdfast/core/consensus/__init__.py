"""How do the replicas of one group agree on one log?"""
