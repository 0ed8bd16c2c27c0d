// The bodies of the functions in child.go that have none are the runtime's.
