"""Who is here, and who leads?"""
