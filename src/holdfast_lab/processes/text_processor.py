"""Entry processors of members in tests, and the settings that name them."""

from __future__ import annotations

from holdfast.serialization.entry_processors import Entry

SETTINGS = f"""
[processors.put_text]
function = "{__name__}:put_text"
factory_id = 66
class_id = 1
"""


def put_text(entry: Entry) -> str | None:
    """Store the text that the caller has sent, and return it."""
    text: str | None = entry.argument.read_string()
    entry.value = text
    return text
