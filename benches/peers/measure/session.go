package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A session is one contender at work on one control plane.
type session struct {
	*process
	cp   *controlPlane
	user string
	// begun is what its user had requested before it was started, in earlier runs on the same plane.
	begun map[string]int
	// before is what it, the servers and this program had used when the work began.
	before struct {
		own, servers, load time.Duration
		requests           map[string]int
	}
}

type setting struct {
	workers       int
	delay         time.Duration
	skipUnchanged bool
}

func (h *harness) begin(cp *controlPlane, c contender, s setting, logName string) (*session, error) {
	kubeconfig, user, err := cp.identity(c.name, s.delay)
	if err != nil {
		return nil, err
	}
	ses := &session{cp: cp, user: user}
	if err := ses.mark(); err != nil {
		return nil, err
	}
	ses.begun = ses.before.requests
	logFile := filepath.Join(h.out, "log", logName+"-"+c.name+".log")
	ses.process, err = start(c.command(kubeconfig, s.workers, s.skipUnchanged), logFile)
	return ses, err
}

// mark: what is used from here on counts.
func (s *session) mark() (err error) {
	if s.process != nil {
		u, err := s.usage()
		if err != nil {
			return err
		}
		s.before.own = u.cpu
	}
	if s.before.servers, err = s.cp.cpu(); err != nil {
		return err
	}
	load, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	s.before.load = load.cpu
	s.before.requests, err = s.cp.audit.of(s.user)
	return err
}

// warmUp has the contender do one Foo, so that the work finds it with filled caches and open
// connections.
func (s *session) warmUp() error {
	admin := s.cp.admin
	const name = "warm-up"
	if _, err := admin.post(foosPath, newFoo(name)); err != nil {
		return err
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := s.usage(); err != nil {
			return err
		}
		_, err := admin.call("GET", deploymentsPath+"/"+name, "", nil)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no Deployment for the first Foo within 60 s; see %s", s.log.Name())
		}
	}
	_, err := s.untilQuiet(quietAfterWork)
	return err
}

// untilQuiet waits until the contender has been silent and idle for so long, and returns when
// it was last at work.
func (s *session) untilQuiet(quiet time.Duration) (time.Time, error) {
	last, lastCPU, lastRequests := time.Now(), time.Duration(-1), -1
	for begin := time.Now(); time.Since(begin) < quietLimit; time.Sleep(look) {
		u, err := s.usage()
		if err != nil {
			return last, err
		}
		counts, err := s.cp.audit.of(s.user)
		if err != nil {
			return last, err
		}
		requests := total(counts)
		if lastCPU < 0 || u.cpu-lastCPU >= busy || requests != lastRequests {
			last = time.Now()
		}
		lastCPU, lastRequests = u.cpu, requests
		if s.asked(counts) && time.Since(last) >= quiet {
			return last, nil
		}
		if s.cp.admin.ctx.Err() != nil {
			return last, s.cp.admin.ctx.Err()
		}
	}
	return last, nil
}

// asked says whether it has asked for both kinds. Before that it is not quiet, only slow to start.
func (s *session) asked(counts map[string]int) bool {
	own := minus(counts, s.begun)
	return own["watch foos"] > 0 && own["watch deployments"] > 0
}

// measured is what it used since mark, its memory now and its peak.
func (s *session) measured() (map[string]float64, map[string]int, error) {
	u, err := s.usage()
	if err != nil {
		return nil, nil, err
	}
	servers, err := s.cp.cpu()
	if err != nil {
		return nil, nil, err
	}
	counts, err := s.cp.audit.of(s.user)
	if err != nil {
		return nil, nil, err
	}
	load, err := usageOf(os.Getpid())
	if err != nil {
		return nil, nil, err
	}
	metrics := map[string]float64{
		"load_cpu_s":    (load.cpu - s.before.load).Seconds(),
		"cpu_s":         (u.cpu - s.before.own).Seconds(),
		"servers_cpu_s": (servers - s.before.servers).Seconds(),
		"resident_mb":   float64(u.resident) / 1e6,
		"peak_mb":       float64(u.peak) / 1e6,
	}
	return metrics, minus(counts, s.before.requests), nil
}
