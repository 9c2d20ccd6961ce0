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

// measureCreates measures the parts converge, rate and status, on a control plane of the contender's own.
func (b *bench) measureCreates(contender string, run int) {
	cp := b.startControlPlane()
	defer cp.stop()
	// The Go peers take a missing status for 0: if they compared, they would never write a first 0.
	s := b.start(cp, contender, contender == "kube-runtime", fmt.Sprintf("creates-run%d-%s", run, contender))
	defer s.stop()
	// One Foo first, so that the work finds filled caches and open connections.
	s.createFoos(&result{Foos: 1}, b.converge+b.rate, 0)
	if b.wants("converge") {
		r := result{Part: "converge", Contender: contender, Run: run, Foos: b.converge}
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
		r := result{Part: "rate", Contender: contender, Run: run, Foos: b.rate}
		ms := s.createFoos(&r, b.converge, b.perSecond).latencies()
		r.Metrics["p50_ms"], r.Metrics["p99_ms"] = percentile(ms, 50), percentile(ms, 99)
		b.record(r, "p50_ms", "p99_ms", "cpu_s")
	}
	if b.wants("status") {
		r := result{Part: "status", Contender: contender, Run: run, Foos: b.status}
		first := b.converge + b.rate + 1
		s.createFoos(&r, first, 0)
		ms := cp.follow(first, r.Foos)
		r.Metrics = map[string]float64{"p50_ms": percentile(ms, 50), "p99_ms": percentile(ms, 99)}
		b.record(r, "p50_ms", "p99_ms")
	}
}

// createFoos creates a result's Foos, from number first on, and measures until the contender rests.
func (s *session) createFoos(r *result, first, perSecond int) *observer {
	s.before = s.tally()
	o := s.cp.observe(first, r.Foos)
	defer o.stop()
	o.create(perSecond)
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
	hasOurs := slices.Contains(b.contenders, ours)
	for i, n := range b.growth {
		if i > 0 {
			cp.copyInPlace(b.growth[i-1], n, hasOurs)
		} else if cp.putInPlace(n); hasOurs {
			// Records in each Deployment that it applied it. A restart finds this done.
			s := b.start(cp, ours, true, "unmeasured")
			s.untilQuiet(quietStart)
			s.stop()
		}
		log.Printf("%d Foos and their Deployments are in place", n)
		time.Sleep(2 * time.Second) // The servers settle after so many writes.
		start := func(part string) func(string, int) {
			return func(contender string, run int) { b.measureColdStart(cp, part, contender, run, n) }
		}
		if n == b.coldStart {
			b.interleaved(b.contenders, b.runs, start("coldstart"))
			writers := slices.DeleteFunc(slices.Clone(b.contenders), func(c string) bool { return c == ours })
			b.interleaved(writers, b.runs, start("coldstart-writing"))
		} else {
			b.interleaved(b.contenders, 1, start("growth"))
		}
	}
}

func (b *bench) measureColdStart(cp *controlPlane, part, contender string, run, foos int) {
	r := result{Part: part, Contender: contender, Run: run, Foos: foos}
	s := b.start(cp, contender, part != "coldstart-writing", r.name())
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
		b.measureQueue(run, queueOfPeers, filepath.Join(bins, "queues.test"), "-test.run=^$", "-test.bench=.",
			"-test.benchtime="+b.queueTime)
		b.measureQueue(run, queueOfOurs, b.ourQueue, "--bench", "--noplot", "--output-format=bencher", "--measurement-time=1")
	}
}

// measureQueue runs a benchmark, whose lines say the contender, the number of workers, and the time.
func (b *bench) measureQueue(run int, line *regexp.Regexp, program string, arguments ...string) {
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "CRITERION_HOME="+must(filepath.Abs(filepath.Join(out, "criterion"))))
	command.Stderr = os.Stderr
	output := must(command.Output())
	matches := line.FindAllSubmatch(output, -1)
	if len(matches) == 0 {
		log.Fatalf("%s printed no times: %s", program, output)
	}
	for _, match := range matches {
		r := result{Part: "queue-" + string(match[2]), Contender: string(match[1]), Run: run}
		if line == queueOfOurs {
			r.Contender = ours
		}
		r.Metrics = map[string]float64{"ns_per_key": must(strconv.ParseFloat(string(match[3]), 64))}
		b.record(r, "ns_per_key")
	}
}
