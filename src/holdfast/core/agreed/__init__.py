"""What does a member take part in by consensus, and how does that hang together?"""
