"""Which partition moves next, and who says so?"""
