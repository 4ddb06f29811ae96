"""What has the whole cluster agreed on? Keys with revisions, changed many at a time, and watched"""
