package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A contender is a Foo controller. To add one, add it to names.
type contender struct {
	name, program string
	// canCompare: with --skip-unchanged it writes no status that is there already. Ours always does so.
	canCompare bool
	// firstZero: when it compares, it still writes a first 0. The Go peers take a missing status
	// for 0, so they compare only at a cold start.
	firstZero bool
}

var names = []string{"ours", "client-go", "controller-runtime", "kube-runtime"}

func knownContenders(bins, ours string) []contender {
	known := []contender{{name: "ours", program: ours}}
	for _, peer := range names[1:] {
		known = append(known, contender{peer, filepath.Join(bins, peer), true, peer == "kube-runtime"})
	}
	return known
}

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

// usage is what the kernel says of a process. Memory is in bytes.
type usage struct {
	cpu            time.Duration
	resident, peak int64
}

func usageOf(pid int) usage {
	folder := fmt.Sprintf("/proc/%d/", pid)
	return parseUsage(string(must(os.ReadFile(folder+"stat"))), string(must(os.ReadFile(folder+"status"))))
}

// parseUsage reads the files stat and status of a process.
func parseUsage(stat, status string) (u usage) {
	// The program's name may hold blanks and brackets, so the fields count from the last bracket.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for _, field := range fields[11:13] { // utime and stime
		u.cpu += time.Duration(must(strconv.ParseInt(field, 10, 64))) * tick
	}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			u.resident = kib << 10
		case "VmHWM":
			u.peak = kib << 10
		}
	}
	return u
}

// A session is a contender at work on a control plane.
type session struct {
	cp        *controlPlane
	user, log string
	command   *exec.Cmd
	started   time.Time
	ended     chan struct{}
	before    tally // of the work
}

// A tally is what a contender and the servers have used so far.
type tally struct {
	own      usage
	servers  time.Duration
	requests counts
}

// start runs a contender with an identity of its own. All that it uses counts.
func (b *bench) start(cp *controlPlane, c contender, compare bool, name string) *session {
	kubeconfig, user := cp.identity(name)
	s := &session{cp: cp, user: user, ended: make(chan struct{}), log: filepath.Join(b.out, "log", name+".log")}
	check(os.MkdirAll(filepath.Dir(s.log), 0o755))
	output := must(os.Create(s.log))
	defer output.Close()
	s.command = exec.Command(c.program, "--kubeconfig="+kubeconfig, "--workers="+strconv.Itoa(b.workers))
	if compare && c.canCompare {
		s.command.Args = append(s.command.Args, "--skip-unchanged")
	}
	s.command.Stdout, s.command.Stderr = output, output
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.before.servers = cp.cpu()
	s.started = time.Now()
	check(s.command.Start())
	go func() {
		_ = s.command.Wait()
		close(s.ended)
	}()
	return s
}

// stop kills the contender. All that is measured was measured before.
func (s *session) stop() {
	_ = s.command.Process.Kill()
	<-s.ended
}

func (s *session) tally() tally {
	check(s.cp.ctx.Err())
	select {
	case <-s.ended:
		check(fmt.Errorf("%s ended by itself; see %s", s.command.Path, s.log))
	default:
	}
	return tally{usageOf(s.command.Process.Pid), s.cp.cpu(), s.cp.audit.of(s.user)}
}

// untilQuiet waits until the contender has been silent and idle for so long, and returns when it
// last was at work. A contender that does not watch both kinds yet is slow to start, not quiet.
func (s *session) untilQuiet(quiet time.Duration) time.Time {
	begin := time.Now()
	last, cpu, requests := begin, time.Duration(0), -1
	for time.Since(begin) < quietLimit {
		now := s.tally()
		if now.own.cpu-cpu >= busy || now.requests.total() != requests {
			last = time.Now()
		}
		cpu, requests = now.own.cpu, now.requests.total()
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
		"cpu_s":         (now.own.cpu - s.before.own.cpu).Seconds(),
		"servers_cpu_s": (now.servers - s.before.servers).Seconds(),
		"resident_mb":   float64(now.own.resident) / 1e6,
		"peak_mb":       float64(now.own.peak) / 1e6,
		"writes":        float64(r.Requests.writes()),
	}
}
