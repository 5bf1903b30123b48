"""The same scenarios with one voter, with three and with etcd: the metadata history is the same"""
