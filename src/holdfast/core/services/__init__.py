"""What else has a share in every partition?"""
