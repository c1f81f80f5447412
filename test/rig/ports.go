package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Linux gives the ports from 32768 on to whoever asks for none in particular, outgoing connections among them
// (net.ipv4.ip_local_port_range, https://docs.kernel.org/networking/ip-sysctl.html). Below them a port that is free stays free
// until it is used.
const (
	firstPort = 20000
	ports     = 12000
)

var nextPort atomic.Uint32

func init() { nextPort.Store(uint32(os.Getpid()) * 100) } // apart from other test processes on this machine

// FreePort returns a port of the host that nobody listens at, and that no other call in this process returns soon.
func FreePort(ctx context.Context, host string) (string, error) {
	var refused error
	for range ports {
		port := strconv.Itoa(firstPort + int(nextPort.Add(1)%ports))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			refused = err
			continue
		}
		return port, listener.Close()
	}
	return "", fmt.Errorf("find a free port of %s: %w", host, refused)
}
