"""Which members hold the replicas of a zone's partitions, and how do they move (J2-J5)?"""
