"""Where does each partition live?"""
