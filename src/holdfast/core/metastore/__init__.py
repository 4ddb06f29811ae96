"""What has the whole cluster agreed on? Keys with revisions and watches, in a Raft group of their own (J1)."""
