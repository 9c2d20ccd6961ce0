package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sizes are the numbers that decide how long all of it takes.
type sizes struct {
	runs int // of each row of the table
	// limit leaves out what inTime says; 0 leaves out nothing.
	limit time.Duration

	converge        int   // Foos created at once
	rate, perSecond int   // Foos created at a rate
	coldStart       int   // Foos in place in the table's row
	growth          []int // Foos in place, each with a Deployment: half the objects
	workers         []int
	workersFoos     int
	delays          []int // of the API server, in milliseconds
	delayFoos       int
	sampleFoos      int
	sampleLimit     time.Duration
	queueTime       string // per row, as go test -benchtime takes it
}

// full takes under 20 minutes on 2 cores, without building.
var full = sizes{
	runs: 3, limit: 20 * time.Minute, converge: 4000, rate: 2000, perSecond: 100, coldStart: 20000,
	growth: []int{500, 2500, 10000, 20000, 25000}, workers: []int{1, 4, 16}, workersFoos: 240,
	delays: []int{0, 10, 50}, delayFoos: 120, sampleFoos: 2000, sampleLimit: 10 * time.Second,
	queueTime: "0.5s",
}

// small takes under 5 minutes. Its numbers show that everything works, not who is faster.
var small = sizes{
	runs: 1, converge: 200, rate: 200, perSecond: 100, coldStart: 1000,
	growth: []int{500, 1000}, workers: []int{1, 8}, workersFoos: 100,
	delays: []int{0, 20}, delayFoos: 50, sampleFoos: 200, sampleLimit: 10 * time.Second,
	queueTime: "0.2s",
}

const (
	// convergeLimit ends a run that would never converge.
	convergeLimit = 5 * time.Minute
	// How long a contender must be silent and idle to count as done: longer at its start, when
	// it may be waiting for the API server to put a list together.
	quietStart, quietAfterWork = 2 * time.Second, time.Second
	// quietLimit ends the wait for a contender that never rests.
	quietLimit = 5 * time.Minute
	// busy is the CPU time within one look that counts as being at work; one tick is noise.
	busy = 2 * tick
	look = 100 * time.Millisecond
	// lastSteps is time enough for what comes after the rounds that may be left out: 27 s where the
	// table was taken.
	lastSteps = 40 * time.Second
)

type harness struct {
	ctx                    context.Context
	contenders             []contender
	sample                 contender
	bins, script, crd, out string
	// ourQueue is the built benches/workqueue.rs, or empty.
	ourQueue string
	workers  int
	results  results
	sizes    sizes
	started  time.Time
	// wanted parts; none of them named is all of them.
	wanted []string
	// rounds that were planned so far.
	rounds int
	// shared is the control plane of the part under way, if its steps use one together.
	shared *sharedPlane
}

// A step measures one thing and says in a few words what came out.
type step struct {
	title string
	run   func() (string, error)
}

// parts of the work, each a scenario of the results. Some have their steps in common.
var parts = []struct {
	names []string
	steps func(*harness) []step
}{
	{[]string{"converge", "rate"}, (*harness).createSteps},
	{[]string{"workers"}, (*harness).workersSteps},
	{[]string{"latency"}, (*harness).latencySteps},
	{[]string{"sample"}, (*harness).sampleSteps},
	{[]string{"queue"}, (*harness).queueSteps},
	{[]string{"coldstart"}, (*harness).coldStartSteps}, // last: of it something can be left out
}

func partNames() []string {
	var names []string
	for _, part := range parts {
		names = append(names, part.names...)
	}
	return names
}

// wants: without a word everything is wanted.
func (h *harness) wants(part string) bool {
	return len(h.wanted) == 0 || slices.Contains(h.wanted, part)
}

func (h *harness) runParts(only string) error {
	h.wanted = list(only)
	for _, name := range h.wanted {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("there is no part %q, but: %s", name, strings.Join(partNames(), " "))
		}
	}
	var plan []step
	for _, part := range parts {
		if slices.ContainsFunc(part.names, h.wants) {
			plan = append(plan, part.steps(h)...)
		}
	}
	defer func() {
		if h.shared != nil {
			h.shared.stop()
		}
	}()
	for i, step := range plan {
		if h.ctx.Err() != nil {
			return h.ctx.Err()
		}
		outcome, err := step.run()
		if err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		log.Printf("[%*d/%d, %3.0f s] %-50s %s", len(fmt.Sprint(len(plan))), i+1, len(plan),
			time.Since(h.started).Seconds(), step.title, outcome)
	}
	return nil
}

// nextRound is all of these, beginning with another one each time: a machine that slows down
// during a round is to the disadvantage of a different one in the next.
func (h *harness) nextRound(all []contender) []contender {
	if len(all) == 0 {
		return nil
	}
	first := h.rounds % len(all)
	h.rounds++
	return slices.Concat(all[first:], all[:first])
}

// interleaved is a step per run and contender, all contenders before the next run.
func (h *harness) interleaved(all []contender, runs int, title string, run func(c contender, run int) (string, error)) []step {
	var steps []step
	for n := 1; n <= runs; n++ {
		for _, c := range h.nextRound(all) {
			name := fmt.Sprintf("%s · %s", title, c.name)
			if runs > 1 {
				name += fmt.Sprintf(" · run %d", n)
			}
			steps = append(steps, step{name, func() (string, error) { return run(c, n) }})
		}
	}
	return steps
}

// inTime leaves out every round but the first that would end later than the limit allows.
func (h *harness) inTime(run func(c contender, run int) (string, error)) func(c contender, run int) (string, error) {
	var first time.Duration // what the first round took
	round, fits := 0, true
	return func(c contender, n int) (string, error) {
		if n != round {
			round = n
			fits = n == 1 || h.sizes.limit == 0 || time.Since(h.started)+first+lastSteps <= h.sizes.limit
		}
		if !fits {
			return fmt.Sprintf("left out, to end within %.0f minutes", h.sizes.limit.Minutes()), nil
		}
		began := time.Now()
		outcome, err := run(c, n)
		if n == 1 {
			first += time.Since(began)
		}
		return outcome, err
	}
}

// A sharedPlane is a control plane that the steps of one part use one after the other.
type sharedPlane struct {
	*controlPlane
	// filled: Foos 0..filled-1, their Deployments and statuses are in place, in total jsonMB
	// as JSON.
	filled   int
	jsonMB   float64
	original *original // of them all; nil as long as there are none
}

// sharing puts the start and the stop of a control plane around the steps of a part.
func (h *harness) sharing(steps []step) []step {
	begin := step{"start a control plane", func() (string, error) {
		cp, err := h.freshControlPlane()
		if err == nil {
			h.shared = &sharedPlane{controlPlane: cp}
		}
		return "", err
	}}
	end := step{"stop it", func() (string, error) {
		h.shared.stop()
		h.shared = nil
		return "", nil
	}}
	return append(append([]step{begin}, steps...), end)
}

// onFresh gives a contender that has done one Foo, and a control plane of its own, to work.
func (h *harness) onFresh(c contender, set setting, logName string, work func(*session) (string, error)) (string, error) {
	cp, err := h.freshControlPlane()
	if err != nil {
		return "", err
	}
	defer cp.stop()
	return h.warm(cp, c, set, logName, work)
}

// warm is onFresh on a control plane that is there. The Foos have no status yet.
func (h *harness) warm(cp *controlPlane, c contender, set setting, logName string, work func(*session) (string, error)) (string, error) {
	set.skipUnchanged = c.firstZero
	s, err := h.begin(cp, c, set, logName)
	if err != nil {
		return "", err
	}
	defer s.stop()
	if err := s.warmUp(); err != nil {
		return "", err
	}
	return work(s)
}

func (h *harness) freshControlPlane() (*controlPlane, error) {
	return startControlPlane(h.ctx, h.script, h.crd, filepath.Join(h.out, "controlplane"))
}

func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o755)
}
