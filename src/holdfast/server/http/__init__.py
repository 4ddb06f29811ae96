"""HTTP sessions: health, metrics, status, the console.

http_session    one connection: bytes in, requests out, responses in, bytes out
http_messages   requests, responses, and how a handler responds
routes          routes and their handlers; how to add one
member_routes   the routes of every member
console_routes  the routes of the console
browser_rules   protection of a logged-in browser against foreign pages
"""
