"""How does a request find the member that serves it?"""
