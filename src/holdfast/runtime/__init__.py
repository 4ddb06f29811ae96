"""The real world around members: asyncio (with uvloop), TCP, files, signals, logs. Opens the sockets between
members.
"""
