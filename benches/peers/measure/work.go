package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// ---- creates: Foos as fast as the API server takes them, then some at a steady rate -----------

// createSteps: each contender gets a fresh control plane and converges there; then come the creates at
// a rate.
func (h *harness) createSteps() []step {
	var titles []string
	var tasks []func(s *session, c contender, run int) (string, error)
	if h.wants("converge") {
		titles = append(titles, fmt.Sprintf("converge %d", h.sizes.converge))
		tasks = append(tasks, h.convergeTable)
	}
	if h.wants("rate") {
		titles = append(titles, fmt.Sprintf("create %d at %d/s", h.sizes.rate, h.sizes.perSecond))
		tasks = append(tasks, h.rate)
	}
	return h.interleaved(h.contenders, h.sizes.runs, strings.Join(titles, ", "), func(c contender, run int) (string, error) {
		return h.onFresh(c, setting{workers: h.workers}, fmt.Sprintf("creates-run%d", run), func(s *session) (string, error) {
			var outcomes []string
			for _, task := range tasks {
				outcome, err := task(s, c, run)
				if err != nil {
					return "", err
				}
				outcomes = append(outcomes, outcome)
			}
			return strings.Join(outcomes, "; "), nil
		})
	})
}

func (h *harness) workersSteps() []step {
	var steps []step
	for _, workers := range h.sizes.workers {
		title := fmt.Sprintf("converge %d with %d workers", h.sizes.workersFoos, workers)
		steps = append(steps, h.interleaved(h.contenders, 1, title, func(c contender, _ int) (string, error) {
			return h.convergePlot("workers", c, h.sizes.workersFoos, setting{workers: workers})
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
			return h.convergePlot("latency", c, h.sizes.delayFoos, setting{workers: h.workers, delay: delay})
		})...)
	}
	return h.sharing(steps)
}

func (h *harness) sampleSteps() []step {
	n := h.sizes.sampleFoos
	return []step{{fmt.Sprintf("converge %d · sample-controller unchanged", n), func() (string, error) {
		return h.onFresh(h.sample, setting{}, "sample", func(s *session) (string, error) {
			return h.converge(s, convergence("sample", h.sample, n, setting{}, 1), h.sizes.sampleLimit, 0)
		})
	}}}
}

func convergence(scenario string, c contender, foos int, set setting, run int) result {
	return result{Scenario: scenario, Contender: c.name, Run: run, Parameters: map[string]int{
		"foos": foos, "workers": set.workers, "delay_ms": int(set.delay.Milliseconds()),
	}}
}

func (h *harness) convergeTable(s *session, c contender, run int) (string, error) {
	r := convergence("converge", c, h.sizes.converge, setting{workers: h.workers}, run)
	return h.converge(s, r, convergeLimit, quietAfterWork)
}

// convergePlot leaves the shared control plane empty again. What a contender still does when all is
// converged is in no plot, and not waited for.
func (h *harness) convergePlot(scenario string, c contender, foos int, set setting) (string, error) {
	r := convergence(scenario, c, foos, set, 1)
	outcome, err := h.warm(h.shared.controlPlane, c, set, r.name(), func(s *session) (string, error) {
		return h.converge(s, r, convergeLimit, 0)
	})
	if err != nil {
		return "", err
	}
	return outcome, h.shared.admin.empty()
}

// converge measures until the contender has been quiet for so long, or if that is 0 until all is converged.
func (h *harness) converge(s *session, r result, limit, quiet time.Duration) (string, error) {
	n := r.Parameters["foos"]
	if err := s.mark(); err != nil {
		return "", err
	}
	o, err := s.cp.admin.observe(0, n)
	if err != nil {
		return "", err
	}
	defer o.stop()
	if err := o.createAll(s.cp.admin); err != nil {
		return "", err
	}
	err = o.wait(s.cp.admin, limit)
	if err == nil && quiet > 0 {
		_, err = s.untilQuiet(quiet)
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

func (h *harness) rate(s *session, c contender, run int) (string, error) {
	n, perSecond := h.sizes.rate, h.sizes.perSecond
	r := result{Scenario: "rate", Contender: c.name, Run: run, Parameters: map[string]int{
		"foos": n, "per_second": perSecond, "workers": h.workers,
	}}
	if err := s.mark(); err != nil {
		return "", err
	}
	o, err := s.cp.admin.observe(h.sizes.converge, n) // other names than those of converge
	if err != nil {
		return "", err
	}
	defer o.stop()
	// A pause of this program's garbage collector would count as the contender's.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := o.createAtRate(s.cp.admin, perSecond); err != nil {
		return "", err
	}
	if err := o.wait(s.cp.admin, convergeLimit); err != nil {
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
		}
		title := fmt.Sprintf("cold start on %d, all comparing first", n)
		steps = append(steps, h.interleaved(h.contenders, runs, title, func(c contender, run int) (string, error) {
			return h.startCold(c, true, run)
		})...)
		if n == h.sizes.coldStart {
			writers := slices.DeleteFunc(slices.Clone(h.contenders), func(c contender) bool { return !c.skipUnchanged })
			title := fmt.Sprintf("cold start on %d, writing", n)
			steps = append(steps, h.interleaved(writers, runs, title, h.inTime(func(c contender, run int) (string, error) {
				return h.startCold(c, false, run)
			}))...)
		}
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
