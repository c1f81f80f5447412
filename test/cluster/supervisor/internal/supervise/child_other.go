//go:build !linux

package supervise

import "syscall"

// dieWithParent adds nothing where there is no parent-death signal; the closing of standard input has to do.
func dieWithParent() *syscall.SysProcAttr { return nil }
