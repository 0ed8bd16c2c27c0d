package loopback

import "syscall"

// dieWithUs ends the server when the thread that starts it ends: a test that is killed leaves no
// listener behind.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
