"""Real nodes as processes, as clusters and in threads; a real etcd; kills and full disks."""
