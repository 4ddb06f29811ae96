"""The Hazelcast client protocol as bytes: frames, the layout of each message, and Compact schemas."""
