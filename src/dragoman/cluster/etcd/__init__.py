"""The metadata quorum by an etcd that somebody runs already, behind the same port as Raft's"""
