"""What a member tells of itself, as plain data."""
