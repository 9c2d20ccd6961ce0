package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A result is one run of one contender. One JSON file each.
type result struct {
	Scenario   string             `json:"scenario"`
	Contender  string             `json:"contender"`
	Run        int                `json:"run"`
	Parameters map[string]int     `json:"parameters"`
	Metrics    map[string]float64 `json:"metrics"`
	// Requests by verb and resource; "refused" are those among them answered with an error.
	Requests map[string]int `json:"requests,omitempty"`
	At       time.Time      `json:"at"`
	Revision string         `json:"revision"`
	// Machine it was taken on; results of earlier times do not say it.
	Machine string `json:"machine,omitempty"`
}

func (r *result) name() string {
	name := r.Scenario
	keys := make([]string, 0, len(r.Parameters))
	for key := range r.Parameters {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		name += fmt.Sprintf("-%s%d", strings.ReplaceAll(key, "_", ""), r.Parameters[key])
	}
	return fmt.Sprintf("%s-run%d", name, r.Run)
}

type results struct {
	folder, revision string
}

func (s results) clear() error { return removeAll(s.folder) }

// remove takes away what these contenders had in these parts, so that fewer runs, or runs with other
// flags, do not stand beside earlier ones. The two parts that measure who was not chosen go as a whole.
func (s results) remove(parts, contenders []string) error {
	return s.each(func(file string, r *result) error {
		whole := r.Scenario == "queue" || r.Scenario == "sample"
		if !slices.Contains(parts, r.Scenario) || !whole && !slices.Contains(contenders, r.Contender) {
			return nil
		}
		return os.Remove(file)
	})
}

func (s results) add(r result) error {
	r.At, r.Revision, r.Machine = time.Now().UTC().Truncate(time.Second), s.revision, thisMachine()
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.folder, r.name()+"-"+r.Contender+".json"), append(data, '\n'), 0o644)
}

func (s results) all() ([]result, error) {
	var all []result
	err := s.each(func(_ string, r *result) error {
		all = append(all, *r)
		return nil
	})
	return all, err
}

func (s results) each(handle func(file string, r *result) error) error {
	files, err := filepath.Glob(filepath.Join(s.folder, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := handle(file, &r); err != nil {
			return err
		}
	}
	return nil
}

// writes are all requests that change something, events included.
func writes(requests map[string]int) int {
	sum := 0
	for what, n := range requests {
		switch verb, _, _ := strings.Cut(what, " "); verb {
		case "create", "update", "patch", "delete", "deletecollection":
			sum += n
		}
	}
	return sum
}

// events among the requests.
func events(requests map[string]int) int {
	sum := 0
	for what, n := range requests {
		if strings.HasSuffix(what, " events") {
			sum += n
		}
	}
	return sum
}

// percentile p of values; NaN without values. Sorts them.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(p/100*float64(len(values))))-1)]
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}
