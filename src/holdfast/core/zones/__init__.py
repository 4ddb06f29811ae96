"""Which members hold the replicas of a zone's partitions, and how do they come to?"""
