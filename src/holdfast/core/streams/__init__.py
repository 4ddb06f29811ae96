"""How do clients see changes? Entry listeners and change streams."""
