package supervise

import (
	"net"
	"os"
	"time"
)

// port is the API server's listening socket, held by the supervisor for the life of the cluster.
type port struct {
	listener *net.TCPListener
	file     *os.File
	refusing chan struct{} // closed when refuse's goroutine has ended; nil while the socket is lent
}

func openPort() (*port, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	file, err := listener.File()
	if err != nil {
		return nil, err
	}
	return &port{listener: listener, file: file}, nil
}

func (p *port) url() string { return "https://" + p.listener.Addr().String() }

// lend returns the socket for an API server about to start. Connections that come before it is up wait.
func (p *port) lend() *os.File {
	if p.refusing != nil {
		_ = p.listener.SetDeadline(time.Unix(1, 0)) // ends Accept
		<-p.refusing
		p.refusing = nil
	}
	return p.file
}

// refuse closes every connection that comes while there is no API server, so that clients see what they would see of a
// machine that is up without it: an error at once, not a silence.
func (p *port) refuse() {
	if p.refusing != nil {
		return
	}
	_ = p.listener.SetDeadline(time.Time{})
	ended := make(chan struct{})
	p.refusing = ended
	go func() {
		defer close(ended)
		for {
			conn, err := p.listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
}
