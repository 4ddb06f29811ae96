"""How do all Raft groups of a member share its disk, its links and its clock?"""
