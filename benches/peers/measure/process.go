package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the kernel's unit of CPU time in /proc, USER_HZ: 100 a second on every Linux.
const tick = 10 * time.Millisecond

// usage is what the kernel says of a process.
type usage struct {
	cpu time.Duration
	// resident and peak are in bytes.
	resident, peak int64
}

func usageOf(pid int) (usage, error) {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("process %d is gone: %w", pid, err)
	}
	// The program's name may hold blanks and brackets: count after the last one.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * tick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			u.resident = kib << 10
		case "VmHWM":
			u.peak = kib << 10
		}
	}
	return u, nil
}

// A process is a contender at work.
type process struct {
	command *exec.Cmd
	log     *os.File
	started time.Time
	ended   chan struct{}
	err     error
}

func start(argv []string, logFile string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return nil, err
	}
	output, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.Command(argv[0], argv[1:]...), log: output, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = output, output
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	if err := p.command.Start(); err != nil {
		output.Close()
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) usage() (usage, error) {
	select {
	case <-p.ended:
		return usage{}, fmt.Errorf("%s ended by itself (%v); see %s", p.command.Path, p.err, p.log.Name())
	default:
		return usageOf(p.command.Process.Pid)
	}
}

// stop ends it at once: what is measured was measured before.
func (p *process) stop() {
	_ = p.command.Process.Kill()
	<-p.ended
	p.log.Close()
}
