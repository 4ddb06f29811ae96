"""How does a write reach its replicas?"""
