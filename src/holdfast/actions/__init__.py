"""Operator actions, one module each: fields, permission, help, audit line, effect on a member, and when it is done.

The command, the HTTP route, the JSON schema and the reference page are made from the class (`operator_action`). To add
an action, add a module here and its test; `registry` finds it.
"""
