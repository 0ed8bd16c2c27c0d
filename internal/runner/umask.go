package runner

import "golang.org/x/sys/unix"

// loginUmask is what the login that started this process gave it; -1 before takeUmask.
var loginUmask = -1

// takeUmask gives this process a umask under which its own files are for their owner, and readable
// by it, whatever the login's was, and remembers the login's for the workload.
func takeUmask() { loginUmask = unix.Umask(0077) }

// LoginUmask is the umask that a workload is to find: the login's own.
func LoginUmask() int { return loginUmask }
