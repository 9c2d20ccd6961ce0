package main

import (
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// measureCreates measures the parts converge and rate, on a control plane of the contender's own.
func (b *bench) measureCreates(c contender, run int) {
	cp := b.startControlPlane()
	defer cp.stop()
	s := b.start(cp, c, c.firstZero, fmt.Sprintf("creates-run%d-%s", run, c.name))
	defer s.stop()
	// One Foo first, so that the work finds filled caches and open connections.
	s.createFoos(&result{Foos: 1}, b.converge+b.rate, 0)
	if b.wants("converge") {
		r := result{Part: "converge", Contender: c.name, Run: run, Foos: b.converge}
		o := s.createFoos(&r, 0, 0)
		perFoo := func(metric string, n int) { r.Metrics[metric] = float64(n) / float64(r.Foos) }
		perFoo("deployment_writes_per_foo", r.Requests.writes("deployments"))
		perFoo("status_writes_per_foo", r.Requests.writes("foos/status"))
		perFoo("events_per_foo", r.Requests.writes("events"))
		perFoo("reads_per_foo", r.Requests.total()-r.Requests.writes(""))
		r.Metrics["span_s"] = o.span().Seconds()
		b.record(r, "span_s", "cpu_s", "resident_mb")
	}
	if b.wants("rate") {
		// A pause of this program's garbage collector would count as the contender's.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		r := result{Part: "rate", Contender: c.name, Run: run, Foos: b.rate}
		ms := s.createFoos(&r, b.converge, b.perSecond).latencies()
		r.Metrics["p50_ms"], r.Metrics["p99_ms"] = percentile(ms, 50), percentile(ms, 99)
		b.record(r, "p50_ms", "p99_ms", "cpu_s")
	}
}

// createFoos creates a result's Foos, from number first on, and measures until the contender rests.
func (s *session) createFoos(r *result, first, perSecond int) *observer {
	s.before = s.tally()
	o := s.cp.observe(first, r.Foos)
	defer o.stop()
	check(o.create(perSecond))
	if err := o.wait(s.ended); err != nil {
		check(fmt.Errorf("%w; see %s", err, s.log))
	}
	s.untilQuiet(quietAfterWork)
	s.measured(r)
	return o
}

// percentile p of sorted values.
func percentile(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// measureColdStarts measures all contenders on one control plane, on which more and more Foos,
// Deployments and statuses are in place.
func (b *bench) measureColdStarts() {
	cp := b.startControlPlane()
	defer cp.stop()
	isOurs := func(c contender) bool { return c.name == "ours" }
	writers := slices.DeleteFunc(slices.Clone(b.contenders), isOurs)
	ours := slices.IndexFunc(b.contenders, isOurs)
	filled := 0
	for _, n := range b.growth {
		if filled == 0 {
			check(cp.putInPlace(n))
			if ours >= 0 { // Records in each Deployment that it applied it. A restart finds this done.
				s := b.start(cp, b.contenders[ours], true, "unmeasured")
				s.untilQuiet(quietStart)
				s.stop()
			}
		} else {
			check(cp.copyInPlace(filled, n, ours >= 0))
		}
		filled = n
		log.Printf("%d Foos and their Deployments are in place", n)
		time.Sleep(2 * time.Second) // The servers settle after so many writes.
		start := func(compare bool) func(contender, int) {
			return func(c contender, run int) { b.measureColdStart(cp, c, run, n, compare) }
		}
		if n == b.coldStart {
			b.interleaved(b.contenders, b.runs, start(true))
			b.interleaved(writers, b.runs, start(false))
		} else {
			b.interleaved(b.contenders, 1, start(true))
		}
	}
}

func (b *bench) measureColdStart(cp *controlPlane, c contender, run, foos int, compare bool) {
	r := result{Part: "coldstart", Contender: c.name, Run: run, Foos: foos, Compares: compare}
	s := b.start(cp, c, compare, r.name())
	defer s.stop()
	last := s.untilQuiet(quietStart)
	s.measured(&r)
	r.Metrics["quiet_s"] = last.Sub(s.started).Seconds()
	b.record(r, "quiet_s", "cpu_s", "peak_mb", "writes")
}

var (
	queueOfPeers = regexp.MustCompile(`BenchmarkQueue/(.+)/workers=(\d+)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)
	queueOfOurs  = regexp.MustCompile(`test (add_get_done)/(\d+)/object_keys/100000 \.\.\. bench:\s+(\d+) ns/iter`)
)

// measureQueues measures the work queues alone, without a control plane.
func (b *bench) measureQueues() {
	for run := 1; run <= b.runs; run++ {
		b.measureQueue(run, queueOfPeers, filepath.Join(b.bins, "queues.test"), "-test.run=^$", "-test.bench=.",
			"-test.benchtime="+b.queueTime)
		b.measureQueue(run, queueOfOurs, b.ourQueue, "--bench", "--noplot", "--output-format=bencher", "--measurement-time=1")
	}
}

// measureQueue runs a benchmark, whose lines say the contender, the number of workers, and the time.
func (b *bench) measureQueue(run int, line *regexp.Regexp, program string, arguments ...string) {
	command := exec.CommandContext(b.ctx, program, arguments...)
	command.Env = append(os.Environ(), "CRITERION_HOME="+must(filepath.Abs(filepath.Join(b.out, "criterion"))))
	command.Stderr = os.Stderr
	output := must(command.Output())
	matches := line.FindAllSubmatch(output, -1)
	if len(matches) == 0 {
		check(fmt.Errorf("%s printed no times: %s", program, output))
	}
	for _, match := range matches {
		contender := string(match[1])
		if line == queueOfOurs {
			contender = "ours"
		}
		b.record(result{
			Part: "queue", Contender: contender, Run: run, Workers: must(strconv.Atoi(string(match[2]))),
			Metrics: map[string]float64{"ns_per_key": must(strconv.ParseFloat(string(match[3]), 64))},
		}, "ns_per_key")
	}
}
