package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// ---- converge: Foos created as fast as the API server takes them ---------------------------

func (h *harness) convergeSteps() []step {
	n := h.sizes.converge
	return h.interleaved(h.contenders, h.sizes.runs, fmt.Sprintf("converge %d", n), func(c contender, run int) (string, error) {
		return h.convergeFresh("converge", c, n, setting{workers: h.workers}, run, convergeLimit)
	})
}

func (h *harness) workersSteps() []step {
	var steps []step
	for _, workers := range h.sizes.workers {
		title := fmt.Sprintf("converge %d with %d workers", h.sizes.workersFoos, workers)
		steps = append(steps, h.interleaved(h.contenders, 1, title, func(c contender, _ int) (string, error) {
			return h.convergeShared("workers", c, h.sizes.workersFoos, setting{workers: workers})
		})...)
	}
	return h.sharing(steps)
}

func (h *harness) latencySteps() []step {
	var steps []step
	for _, ms := range h.sizes.delays {
		title := fmt.Sprintf("converge %d, API server %d ms away", h.sizes.delayFoos, ms)
		delay := time.Duration(ms) * time.Millisecond
		steps = append(steps, h.interleaved(h.contenders, 1, title, func(c contender, _ int) (string, error) {
			return h.convergeShared("latency", c, h.sizes.delayFoos, setting{workers: h.workers, delay: delay})
		})...)
	}
	return h.sharing(steps)
}

func (h *harness) sampleSteps() []step {
	n := h.sizes.sampleFoos
	return []step{{fmt.Sprintf("converge %d · sample-controller unchanged", n), func() (string, error) {
		return h.convergeFresh("sample", h.sample, n, setting{}, 1, h.sizes.sampleLimit)
	}}}
}

func (h *harness) convergeFresh(scenario string, c contender, n int, set setting, run int, limit time.Duration) (string, error) {
	cp, err := h.freshControlPlane()
	if err != nil {
		return "", err
	}
	defer cp.stop()
	return h.converge(scenario, cp, c, n, set, run, limit)
}

// convergeShared leaves the shared control plane empty again.
func (h *harness) convergeShared(scenario string, c contender, n int, set setting) (string, error) {
	outcome, err := h.converge(scenario, h.shared.controlPlane, c, n, set, 1, convergeLimit)
	if err != nil {
		return "", err
	}
	return outcome, h.shared.admin.empty()
}

func (h *harness) converge(scenario string, cp *controlPlane, c contender, n int, set setting, run int, limit time.Duration) (string, error) {
	r := result{Scenario: scenario, Contender: c.name, Run: run, Parameters: map[string]int{
		"foos": n, "workers": set.workers, "delay_ms": int(set.delay.Milliseconds()),
	}}
	set.skipUnchanged = c.firstZero // the Foos have no status yet
	s, err := h.begin(cp, c, set, r.name())
	if err != nil {
		return "", err
	}
	defer s.stop()
	if err := s.warmUp(); err != nil {
		return "", err
	}
	o, err := cp.admin.observe(n)
	if err != nil {
		return "", err
	}
	defer o.stop()
	if err := o.createAll(cp.admin); err != nil {
		return "", err
	}
	err = o.wait(cp.admin, limit)
	if err == nil {
		_, err = s.untilQuiet(quietAfterWork)
	}
	if err != nil && !errors.Is(err, errNotConverged) {
		return "", err
	}
	if r.Metrics, r.Requests, err = s.measured(); err != nil {
		return "", err
	}
	r.Metrics["span_s"] = o.span().Seconds()
	r.Metrics["converged"] = float64(o.converged())
	r.Metrics["limit_s"] = limit.Seconds()
	return fmt.Sprintf("%d/%d in %.1f s, %.2f CPU s, %.0f MB", o.converged(), n, r.Metrics["span_s"],
		r.Metrics["cpu_s"], r.Metrics["resident_mb"]), h.results.add(r)
}

// ---- rate: Foos created at a steady rate ---------------------------------------------------

func (h *harness) rateSteps() []step {
	title := fmt.Sprintf("%d creates at %d/s", h.sizes.rate, h.sizes.perSecond)
	return h.interleaved(h.contenders, h.sizes.runs, title, h.rate)
}

func (h *harness) rate(c contender, run int) (string, error) {
	n, perSecond := h.sizes.rate, h.sizes.perSecond
	r := result{Scenario: "rate", Contender: c.name, Run: run, Parameters: map[string]int{
		"foos": n, "per_second": perSecond, "workers": h.workers,
	}}
	cp, err := h.freshControlPlane()
	if err != nil {
		return "", err
	}
	defer cp.stop()
	s, err := h.begin(cp, c, setting{workers: h.workers, skipUnchanged: c.firstZero}, r.name()) // as in converge
	if err != nil {
		return "", err
	}
	defer s.stop()
	if err := s.warmUp(); err != nil {
		return "", err
	}
	o, err := cp.admin.observe(n)
	if err != nil {
		return "", err
	}
	defer o.stop()
	// A pause of this program's garbage collector would count as the contender's.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := o.createAtRate(cp.admin, perSecond); err != nil {
		return "", err
	}
	if err := o.wait(cp.admin, convergeLimit); err != nil {
		return "", err
	}
	if _, err := s.untilQuiet(quietAfterWork); err != nil {
		return "", err
	}
	if r.Metrics, r.Requests, err = s.measured(); err != nil {
		return "", err
	}
	returned, sent := o.latencies(o.returned), o.latencies(o.sent)
	for _, p := range []float64{50, 90, 99, 100} {
		r.Metrics[fmt.Sprintf("p%.0f_ms", p)] = percentile(returned, p)
		r.Metrics[fmt.Sprintf("sent_p%.0f_ms", p)] = percentile(sent, p)
	}
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, %.2f CPU s", r.Metrics["p50_ms"], r.Metrics["p99_ms"],
		r.Metrics["cpu_s"]), h.results.add(r)
}

// ---- cold start: everything is in place already --------------------------------------------

func (h *harness) coldStartSteps() []step {
	var steps []step
	for _, n := range h.sizes.growth {
		steps = append(steps, step{fmt.Sprintf("put %d Foos with Deployments in place", n), func() (string, error) {
			err := h.shared.grow(n)
			return fmt.Sprintf("%.1f MB of JSON", h.shared.jsonMB), err
		}})
		runs := 1
		if n == h.sizes.coldStart {
			runs = h.sizes.runs
			title := fmt.Sprintf("cold start on %d", n)
			steps = append(steps, h.interleaved(h.contenders, runs, title, func(c contender, run int) (string, error) {
				if !c.skipUnchanged { // there is only one way to run it, and that comes next
					return "see below", nil
				}
				return h.startCold(c, false, run)
			})...)
		}
		title := fmt.Sprintf("cold start on %d, all comparing first", n)
		steps = append(steps, h.interleaved(h.contenders, runs, title, func(c contender, run int) (string, error) {
			return h.startCold(c, true, run)
		})...)
	}
	return h.sharing(steps)
}

func (c *sharedPlane) grow(n int) error {
	if c.original == nil {
		var err error
		if c.original, err = c.putOriginal(); err != nil {
			return err
		}
		c.filled = 1
	}
	if err := c.original.copyTo(c.filled, n); err != nil {
		return err
	}
	c.filled = n
	var sum int64
	for _, path := range []string{foosPath, deploymentsPath} {
		size, err := c.admin.size(path)
		if err != nil {
			return err
		}
		sum += size
	}
	c.jsonMB = float64(sum) / 1e6
	time.Sleep(2 * time.Second) // what the servers do after so many writes is nobody's fault
	return nil
}

func (h *harness) startCold(c contender, skipUnchanged bool, run int) (string, error) {
	r := result{Scenario: "coldstart", Contender: c.name, Run: run, Parameters: map[string]int{
		"foos": h.shared.filled, "workers": h.workers, "skip_unchanged": 0,
	}}
	if skipUnchanged {
		r.Parameters["skip_unchanged"] = 1
	}
	set := setting{workers: h.workers, skipUnchanged: skipUnchanged}
	s, err := h.begin(h.shared.controlPlane, c, set, r.name())
	if err != nil {
		return "", err
	}
	defer s.stop()
	last, err := s.untilQuiet(quietStart)
	if err != nil {
		return "", err
	}
	if r.Metrics, r.Requests, err = s.measured(); err != nil {
		return "", err
	}
	r.Metrics["quiet_s"] = last.Sub(s.started).Seconds()
	r.Metrics["json_mb"] = h.shared.jsonMB
	r.Metrics["writes"] = float64(writes(r.Requests))
	return fmt.Sprintf("quiet after %.1f s, %.2f CPU s, peak %.0f MB, %d writes", r.Metrics["quiet_s"],
		r.Metrics["cpu_s"], r.Metrics["peak_mb"], writes(r.Requests)), h.results.add(r)
}

// ---- queue: the work queues alone ----------------------------------------------------------

const queueBacklog = 100_000

func (h *harness) queueSteps() []step {
	var steps []step
	for run := 1; run <= h.sizes.runs; run++ {
		peers := step{"work queues of the Go peers", func() (string, error) { return h.queuesOfPeers(run) }}
		ours := step{"our work queue", func() (string, error) { return h.queueOfOurs(run) }}
		switch {
		case h.ourQueue == "":
			steps = append(steps, peers)
		case run%2 == 1:
			steps = append(steps, peers, ours)
		default:
			steps = append(steps, ours, peers)
		}
	}
	return steps
}

var queueLine = regexp.MustCompile(`BenchmarkQueue/(.+)/workers=(\d+)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)

func (h *harness) queuesOfPeers(run int) (string, error) {
	command := exec.CommandContext(h.ctx, filepath.Join(h.bins, "queues.test"), "-test.run=^$", "-test.bench=.",
		"-test.benchtime="+h.sizes.queueTime)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", err
	}
	rows := 0
	for _, match := range queueLine.FindAllStringSubmatch(string(output), -1) {
		workers, _ := strconv.Atoi(match[2])
		ns, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			return "", err
		}
		if err := h.addQueueResult(match[1], workers, run, ns); err != nil {
			return "", err
		}
		rows++
	}
	return fmt.Sprintf("%d rows", rows), nil
}

// queueOfOurs runs benches/workqueue.rs with keys of namespace and name, and reads what criterion
// wrote down.
func (h *harness) queueOfOurs(run int) (string, error) {
	home, err := filepath.Abs(filepath.Join(h.out, "criterion"))
	if err != nil {
		return "", err
	}
	if err := removeAll(home); err != nil {
		return "", err
	}
	command := exec.CommandContext(h.ctx, h.ourQueue, "--bench", "--noplot",
		fmt.Sprintf("object_keys/%d$", queueBacklog))
	command.Env = append(os.Environ(), "CRITERION_HOME="+home)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", h.ourQueue, err, output)
	}
	estimates := fmt.Sprintf("add_get_done/*_object_keys/%d/new/estimates.json", queueBacklog)
	files, err := filepath.Glob(filepath.Join(home, estimates))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		folder := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file))))
		workers, err := strconv.Atoi(strings.TrimSuffix(folder, "_object_keys"))
		if err != nil {
			return "", err
		}
		ns, err := criterionMedian(file)
		if err != nil {
			return "", err
		}
		if err := h.addQueueResult("ours", workers, run, ns); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d rows", len(files)), nil
}

// criterionMedian is the median in nanoseconds that criterion wrote into a file.
func criterionMedian(file string) (float64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var estimate struct {
		Median struct {
			Nanoseconds float64 `json:"point_estimate"`
		} `json:"median"`
	}
	err = json.Unmarshal(data, &estimate)
	return estimate.Median.Nanoseconds, err
}

func (h *harness) addQueueResult(contender string, workers, run int, ns float64) error {
	return h.results.add(result{
		Scenario: "queue", Contender: contender, Run: run,
		Parameters: map[string]int{"keys": queueBacklog, "workers": workers},
		Metrics:    map[string]float64{"ns_per_key": ns},
	})
}
