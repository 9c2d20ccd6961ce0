package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const ours = "ours"

// names of the contenders. To add one, add it here, a colour in plot.go, and its build in bench.sh.
var names = []string{ours, "client-go", "controller-runtime", "kube-runtime"}

const (
	// A contender that is silent and idle for so long is done. A cold start waits longer, because
	// the API server may be putting a list together.
	quietStart, quietAfterWork = 2 * time.Second, time.Second
	// quietLimit ends the wait for a contender that never rests.
	quietLimit = 5 * time.Minute
	// busy is the CPU time within one look that counts as work. One tick is noise.
	busy = 2 * tick
	look = 100 * time.Millisecond
	// tick is the kernel's unit of CPU time in /proc, USER_HZ: 100 a second on every Linux.
	tick = 10 * time.Millisecond
)

func cpuOf(pid int) (cpu time.Duration) {
	stat := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))))
	// The program's name may hold blanks and brackets, so the fields count from the last bracket.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for _, field := range fields[11:13] { // utime and stime
		cpu += time.Duration(must(strconv.Atoi(field))) * tick
	}
	return cpu
}

// megabytesOf reads a line of /proc/PID/status: VmRSS is the resident memory, VmHWM its peak.
func megabytesOf(pid int, line string) float64 {
	_, rest, _ := strings.Cut(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))), line+":")
	return must(strconv.ParseFloat(strings.Fields(rest)[0], 64)) * 1024 / 1e6
}

// A session is a contender at work on a control plane.
type session struct {
	cp      *controlPlane
	command *exec.Cmd
	started time.Time
	stopped atomic.Bool
	ended   chan struct{}
	before  tally // of the work
}

// A tally is what a contender and the servers have used so far.
type tally struct {
	own, servers time.Duration
	requests     counts
}

// start runs a contender. All that it uses counts. A peer that compares writes no status that is there already.
func (b *bench) start(cp *controlPlane, contender string, compare bool, name string) *session {
	program, path := filepath.Join(bins, contender), filepath.Join(out, "log", name+".log")
	if contender == ours {
		program = b.ours
	}
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	output := must(os.Create(path))
	defer output.Close()
	s := &session{cp: cp, ended: make(chan struct{}), command: exec.Command(program, "--kubeconfig="+cp.kubeconfig, "--workers=8")}
	if compare && contender != ours {
		s.command.Args = append(s.command.Args, "--skip-unchanged")
	}
	s.command.Stdout, s.command.Stderr = output, output
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cp.audit.read()
	clear(cp.audit.counts)
	s.before.servers = cp.serversCPU()
	s.started = time.Now()
	check(s.command.Start())
	go func() {
		ended, _ := s.command.Process.Wait()
		if !s.stopped.Load() {
			log.Fatalf("%s ended by itself: %s; see %s", contender, ended, path)
		}
		close(s.ended)
	}()
	return s
}

// stop kills the contender. All that is measured was measured before.
func (s *session) stop() {
	s.stopped.Store(true)
	check(s.command.Process.Kill())
	<-s.ended
}

func (s *session) tally() tally {
	return tally{cpuOf(s.command.Process.Pid), s.cp.serversCPU(), s.cp.audit.read()}
}

// untilQuiet waits until the contender has been silent and idle for so long, and returns when it
// last was at work. A contender that does not watch both kinds yet is slow to start, not quiet.
func (s *session) untilQuiet(quiet time.Duration) time.Time {
	begin := time.Now()
	last, cpu, requests := begin, time.Duration(0), -1
	for time.Since(begin) < quietLimit {
		now := s.tally()
		if now.own-cpu >= busy || now.requests.total() != requests {
			last = time.Now()
		}
		cpu, requests = now.own, now.requests.total()
		if now.requests["watch foos"] > 0 && now.requests["watch deployments"] > 0 && time.Since(last) >= quiet {
			break
		}
		time.Sleep(look)
	}
	return last
}

// measured adds to a result what was used since `before`.
func (s *session) measured(r *result) {
	now := s.tally()
	r.Requests = now.requests.since(s.before.requests)
	r.Metrics = map[string]float64{
		"cpu_s":         (now.own - s.before.own).Seconds(),
		"servers_cpu_s": (now.servers - s.before.servers).Seconds(),
		"resident_mb":   megabytesOf(s.command.Process.Pid, "VmRSS"),
		"peak_mb":       megabytesOf(s.command.Process.Pid, "VmHWM"),
		"writes":        float64(r.Requests.writes("")),
	}
}
