"""Sessions of clients: bytes in, requests out, answers in, bytes out. Pure: a session knows no socket."""
