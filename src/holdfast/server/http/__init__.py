"""Sessions over HTTP: health, metrics, status, the console.

http_session    one connection: bytes in, requests out, answers in, bytes out
http_messages   a request, an answer, and what a handler may do with a request
routes          which handler serves which path; how to add one
member_routes   the routes of every member
browser_rules   what keeps a page of somebody else from using a browser that may come in
"""
