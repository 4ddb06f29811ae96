"""The real world: asyncio (uvloop where there is one), TCP, signals, logs. Only here are sockets between
members opened.
"""
