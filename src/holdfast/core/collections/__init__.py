"""Collections: queues, lists and sets, whose items are the entries of a map in one partition (collections/C-1).

So replication, migration, repair, journal and cuts treat them as they treat maps. Steps are decided here, by pure
functions of the entries and their order.
"""
