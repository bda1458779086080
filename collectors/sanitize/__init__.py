"""From what must stay on its host to what may be shared: runs and workloads without content."""
