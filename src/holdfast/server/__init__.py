"""Client sessions: bytes in, requests out, responses in, bytes out. Pure: a session knows no socket."""
