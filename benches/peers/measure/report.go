package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	beginMark = "<!-- bench:begin, written by hack/bench.sh -->"
	endMark   = "<!-- bench:end -->"
	missing   = "–"
	// plotFolder is beside the document.
	plotFolder = "performance"
)

var peers = []string{"client-go", "controller-runtime", "kube-runtime"}

// A row compares one number. Smaller is better in all of them.
type row struct {
	title string
	goal  string
	// pick says which results count, value what of them.
	pick  func(*result) bool
	value func(*result) float64
	// oursFrom, if set, replaces pick for ours: where only the peers have two ways to run.
	oursFrom func(*result) bool
	digits   int
	// noRatio: a count, compared as it is.
	noRatio bool
}

func metric(name string) func(*result) float64 {
	return func(r *result) float64 {
		if value, ok := r.Metrics[name]; ok {
			return value
		}
		return math.NaN()
	}
}

func perFoo(count func(map[string]int) int) func(*result) float64 {
	return func(r *result) float64 { return float64(count(r.Requests)) / float64(r.Parameters["foos"]) }
}

func countOf(suffixes ...string) func(map[string]int) int {
	return func(requests map[string]int) int {
		sum := 0
		for what, n := range requests {
			for _, suffix := range suffixes {
				if what == suffix {
					sum += n
				}
			}
		}
		return sum
	}
}

func with(scenario string, parameters map[string]int) func(*result) bool {
	return func(r *result) bool {
		if r.Scenario != scenario {
			return false
		}
		for key, value := range parameters {
			if r.Parameters[key] != value {
				return false
			}
		}
		return true
	}
}

// largest is the biggest value of a parameter that the results of a scenario have with
// `skip_unchanged` off, that is the size of the table's row.
func largest(all []result, scenario, parameter string) int {
	n := 0
	for i := range all {
		if all[i].Scenario == scenario && (scenario != "coldstart" || all[i].Parameters["skip_unchanged"] == 0) {
			n = max(n, all[i].Parameters[parameter])
		}
	}
	return n
}

func rows(all []result) []row {
	converge := with("converge", nil)
	rate := with("rate", nil)
	cold := largest(all, "coldstart", "foos")
	asIs := with("coldstart", map[string]int{"foos": cold, "skip_unchanged": 0})
	comparing := with("coldstart", map[string]int{"foos": cold, "skip_unchanged": 1})
	queue := func(workers int) func(*result) bool {
		return with("queue", map[string]int{"workers": workers})
	}
	json := 0.0
	for i := range all {
		if comparing(&all[i]) {
			json = all[i].Metrics["json_mb"]
		}
	}
	statusWrites := countOf("update foos/status", "patch foos/status")
	creates := countOf("create deployments", "patch deployments", "update deployments")
	otherReads := func(requests map[string]int) int { return total(requests) - writes(requests) }
	work := fmt.Sprintf("converge %s Foos: ", thousands(largest(all, "converge", "foos")))
	at := fmt.Sprintf("%d creates/s, %s Foos: ", largest(all, "rate", "per_second"), thousands(largest(all, "rate", "foos")))
	start := fmt.Sprintf("cold start on %s Foos and their Deployments (%.0f MB of JSON): ", thousands(cold), json)
	return []row{
		{title: work + "CPU s", goal: "≤ 0.33", pick: converge, value: metric("cpu_s"), digits: 2},
		{title: "… converged after s", goal: "≤ 0.75", pick: converge, value: metric("span_s"), digits: 1},
		{title: "… CPU s of API server and etcd", pick: converge, value: metric("servers_cpu_s"), digits: 1},
		{title: "… Deployment writes per Foo", goal: "1", pick: converge, value: perFoo(creates), digits: 3, noRatio: true},
		{title: "… status writes per Foo", goal: "≤ 1.0", pick: converge, value: perFoo(statusWrites), digits: 2, noRatio: true},
		{title: "… events per Foo", goal: "0", pick: converge, value: perFoo(events), digits: 2, noRatio: true},
		{title: "… reads per Foo", pick: converge, value: perFoo(otherReads), digits: 3, noRatio: true},
		{title: "… resident MB after", goal: "≤ 0.25", pick: converge, value: metric("resident_mb"), digits: 1},
		{title: start + "CPU s", goal: "≤ 0.125", pick: asIs, oursFrom: comparing, value: metric("cpu_s"), digits: 2},
		{title: "… until quiet, s", goal: "≤ 0.125", pick: asIs, oursFrom: comparing, value: metric("quiet_s"), digits: 1},
		{title: "… writes", goal: "0", pick: asIs, oursFrom: comparing, value: metric("writes"), noRatio: true},
		{title: "… peak resident MB", goal: "≤ 0.125", pick: asIs, oursFrom: comparing, value: metric("peak_mb"), digits: 1},
		{title: "the same, peers made to compare before they write: CPU s", pick: comparing, value: metric("cpu_s"), digits: 2},
		{title: "… until quiet, s", pick: comparing, value: metric("quiet_s"), digits: 1},
		{title: "… peak resident MB", pick: comparing, value: metric("peak_mb"), digits: 1},
		{title: at + "Deployment seen after, p50 ms", goal: "≤ 1.5 ms", pick: rate, value: metric("p50_ms"), digits: 2},
		{title: "… p99 ms", goal: "≤ 6 ms", pick: rate, value: metric("p99_ms"), digits: 2},
		{title: "… CPU s", goal: "≤ 0.33", pick: rate, value: metric("cpu_s"), digits: 2},
		{title: "queue, ns per add+get+done, 100,000 keys waiting: 1 worker", pick: queue(1), value: metric("ns_per_key")},
		{title: "… 4 workers", goal: "≤ 200 ns", pick: queue(4), value: metric("ns_per_key")},
		{title: "… 16 workers", pick: queue(16), value: metric("ns_per_key")},
	}
}

// writeReport replaces the table in document and draws the plots beside it, or prints the table.
func writeReport(store results, document string) error {
	all, err := store.all()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s", store.folder)
	}
	text := table(all) + sampleLine(all) + "\n" + machine(all)
	if document == "" {
		fmt.Print(text)
		_, err = writePlots(all, filepath.Join(filepath.Dir(store.folder), plotFolder))
		return err
	}
	drawn, err := writePlots(all, filepath.Join(filepath.Dir(document), plotFolder))
	if err != nil {
		return err
	}
	for _, p := range drawn {
		text += fmt.Sprintf("\n![%s](%s/%s)\n", p.title, plotFolder, p.file)
	}
	return replaceBetweenMarks(document, text)
}

func table(all []result) string {
	var b strings.Builder
	b.WriteString("| work | ours ÷ best peer | goal | ours | client-go | controller-runtime | kube-runtime |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for _, row := range rows(all) {
		ours := row.values(all, "ours")
		best := math.Inf(1)
		cells := make([]string, 0, len(peers))
		for _, peer := range peers {
			values := row.values(all, peer)
			if len(values) > 0 {
				best = min(best, median(values))
			}
			cells = append(cells, spread(values, row.digits))
		}
		ratio := missing
		if len(ours) > 0 && !math.IsInf(best, 1) && best > 0 && !row.noRatio {
			ratio = fmt.Sprintf("**%.2f**", median(ours)/best)
		}
		goal := row.goal
		if goal == "" {
			goal = missing
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.title, ratio, goal, spread(ours, row.digits), strings.Join(cells, " | "))
	}
	return b.String()
}

func (r *row) values(all []result, contender string) []float64 {
	pick := r.pick
	if contender == "ours" && r.oursFrom != nil {
		pick = r.oursFrom
	}
	var values []float64
	for i := range all {
		if all[i].Contender == contender && pick(&all[i]) {
			if value := r.value(&all[i]); !math.IsNaN(value) {
				values = append(values, value)
			}
		}
	}
	return values
}

// spread is the median and, of several runs that differ, the smallest and the largest.
func spread(values []float64, digits int) string {
	if len(values) == 0 {
		return missing
	}
	number := func(v float64) string {
		if digits == 0 {
			return thousands(int(math.Round(v)))
		}
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	text := number(median(values)) // sorts
	low, high := number(values[0]), number(values[len(values)-1])
	if low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	return text
}

func sampleLine(all []result) string {
	for i := range all {
		if r := &all[i]; r.Scenario == "sample" {
			return fmt.Sprintf("\nk8s.io/sample-controller, unchanged (2 workers, 5 requests a second): %.0f of %s Foos done within %.0f s.\n",
				r.Metrics["converged"], thousands(r.Parameters["foos"]), r.Metrics["limit_s"])
		}
	}
	return ""
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func machine(all []result) string {
	newest, revision, runs := time.Time{}, "", 0
	for i := range all {
		if r := &all[i]; r.At.After(newest) {
			newest = r.At
			revision = r.Revision
		}
		runs = max(runs, all[i].Run)
	}
	model := field("/proc/cpuinfo", "model name")
	memory, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	how := "One run"
	if runs > 1 {
		how = fmt.Sprintf("Median of %d runs (smallest–largest)", runs)
	}
	return fmt.Sprintf("Taken %s at %s on %d × %s, %d GiB, Linux %s, %s. %s; MB are 10⁶ bytes.\n",
		newest.Format("2006-01-02"), revision, runtime.NumCPU(), model, (memory+1<<19)>>20, strings.TrimSpace(string(kernel)),
		runtime.Version(), how)
}

func field(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func replaceBetweenMarks(document, text string) error {
	data, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", document, beginMark, endMark)
	}
	return os.WriteFile(document, []byte(before+beginMark+"\n"+text+endMark+after), 0o644)
}
