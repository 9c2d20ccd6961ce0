package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// newest is a parameter of a scenario's newest result: a row does not mix results that differ in it.
func newest(all []result, scenario, parameter string) int {
	var last result
	for _, r := range all {
		if r.Scenario == scenario && !r.At.Before(last.At) {
			last = r
		}
	}
	return last.Parameters[parameter]
}

func rows(all []result) []row {
	// Rows are of results with as many workers as were used last.
	converge := with("converge", map[string]int{"workers": newest(all, "converge", "workers")})
	rate := with("rate", map[string]int{"workers": newest(all, "rate", "workers")})
	cold := largest(all, "coldstart", "foos")
	coldStart := func(skipUnchanged int) func(*result) bool {
		return with("coldstart", map[string]int{
			"workers": newest(all, "coldstart", "workers"), "foos": cold, "skip_unchanged": skipUnchanged,
		})
	}
	asIs, comparing := coldStart(0), coldStart(1)
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
		{title: "queue, ns per add+get+done, 100,000 keys waiting: 1 worker", goal: "≤ 1.00", pick: queue(1), value: metric("ns_per_key")},
		{title: "… 4 workers", goal: "≤ 1.00", pick: queue(4), value: metric("ns_per_key")},
		{title: "… 16 workers", goal: "≤ 1.00", pick: queue(16), value: metric("ns_per_key")},
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
	text := table(all) + sampleLine(all) + "\n" + caption(all)
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
		if math.IsInf(best, 1) && len(ours) == 0 {
			continue
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

// caption says what was taken when, of which revision and on which machine.
func caption(all []result) string {
	// What was taken of one revision on one machine, and of whom in each scenario.
	type taken struct{ machine, revision string }
	at := map[taken]time.Time{}
	of := map[taken]map[string][]string{}
	everybody := map[string][]string{}
	runs := map[string]int{}
	for i := range all {
		r := &all[i]
		key := taken{r.Machine, r.Revision}
		if key.machine == "" {
			key.machine = thisMachine()
		}
		if of[key] == nil {
			of[key] = map[string][]string{}
		}
		of[key][r.Scenario] = including(of[key][r.Scenario], r.Contender)
		everybody[r.Scenario] = including(everybody[r.Scenario], r.Contender)
		if r.At.After(at[key]) {
			at[key] = r.At
		}
		if slices.Contains(tableParts, r.Scenario) {
			one := fmt.Sprint(r.Scenario, " ", r.Contender, " ", r.Parameters["skip_unchanged"])
			runs[one] = max(runs[one], r.Run)
		}
	}
	keys := slices.SortedFunc(maps.Keys(of), func(a, b taken) int {
		return cmp.Or(cmp.Compare(a.machine, b.machine), at[a].Compare(at[b]), cmp.Compare(a.revision, b.revision))
	})
	var text strings.Builder
	for i, key := range keys {
		if i == 0 || key.machine != keys[i-1].machine {
			if i > 0 {
				text.WriteString(". ")
			}
			fmt.Fprintf(&text, "Taken on %s: ", key.machine)
		} else {
			text.WriteString("; ")
		}
		var names []string
		for _, scenario := range partNames() {
			who := of[key][scenario]
			switch {
			case len(who) == len(everybody[scenario]) && len(who) > 0:
				names = append(names, scenario)
			case len(who) > 0:
				names = append(names, scenario+" of "+strings.Join(who, " and "))
			}
		}
		fmt.Fprintf(&text, "%s (%s, %s)", strings.Join(names, ", "), at[key].Format("2006-01-02"), key.revision)
	}
	return fmt.Sprintf("%s. %s; MB are 10⁶ bytes.\n", text.String(), howMany(slices.Collect(maps.Values(runs))))
}

// tableParts have as many runs as the command line says; all others have one.
var tableParts = []string{"converge", "rate", "coldstart", "queue"}

func howMany(runs []int) string {
	if len(runs) == 0 || slices.Max(runs) == 1 {
		return "One run"
	}
	few, many := slices.Min(runs), slices.Max(runs)
	if few < many {
		return fmt.Sprintf("Median of %d to %d runs (smallest–largest)", few, many)
	}
	return fmt.Sprintf("Median of %d runs (smallest–largest)", many)
}

// including is names with this one among them, once, in order.
func including(names []string, name string) []string {
	if i, found := slices.BinarySearch(names, name); !found {
		names = slices.Insert(names, i, name)
	}
	return names
}

var thisMachine = sync.OnceValue(func() string {
	model := field("/proc/cpuinfo", "model name")
	memory, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s, %s", runtime.NumCPU(), model, (memory+1<<19)>>20,
		strings.TrimSpace(string(kernel)), runtime.Version())
})

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
