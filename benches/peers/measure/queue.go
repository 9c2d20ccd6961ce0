package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const queueBacklog = 100_000

// queueSteps: the work queues alone, without a control plane; the peers first in one run, ours in the next.
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
	command := exec.CommandContext(h.ctx, h.ourQueue, "--bench", "--noplot", "--measurement-time", "1",
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
