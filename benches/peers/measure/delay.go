package main

import (
	"net"
	"sync"
	"time"
)

// A delayProxy passes TCP through and holds back all that the server says by a fixed time, so
// that every answer and every watch event comes that much later. Throughput stays: what waits
// is kept with the time at which it is due.
type delayProxy struct {
	listener net.Listener
	server   string
	delay    time.Duration
}

func startDelayProxy(server string, delay time.Duration) (*delayProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{listener, server, delay}
	go p.accept()
	return p, nil
}

func (p *delayProxy) address() string { return p.listener.Addr().String() }

func (p *delayProxy) close() { p.listener.Close() }

func (p *delayProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.pass(client)
	}
}

func (p *delayProxy) pass(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { copyAfter(server, client, 0) })
	both.Go(func() { copyAfter(client, server, p.delay) })
	both.Wait()
}

type chunk struct {
	due  time.Time
	data []byte
}

// copyAfter ends both connections when one side has said its last word.
func copyAfter(to, from net.Conn, delay time.Duration) {
	// Far more chunks than a window of TCP holds; beyond it the sender has to wait.
	chunks := make(chan chunk, 4096)
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- chunk{time.Now().Add(delay), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	for range chunks { // until its reader has noticed
	}
}
