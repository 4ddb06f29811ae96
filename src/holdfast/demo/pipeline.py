def java():
    return ""


class Job: ...
