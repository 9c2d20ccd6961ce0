package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A result is one run of one contender.
type result struct {
	Part, Contender    string
	Run, Workers, Foos int
	Compares           bool // at a cold start: before it writes
	Metrics            map[string]float64
	Requests           counts
	At                 time.Time
	Revision, Machine  string
}

// name is a valid name of a ServiceAccount, too.
func (r *result) name() string {
	return fmt.Sprintf("%s-foos%d-workers%d-compares-%t-run%d-%s", r.Part, r.Foos, r.Workers, r.Compares, r.Run, r.Contender)
}

// resultsFile has the results of all parts, so that one can be measured again without the others.
func (b *bench) resultsFile() string { return filepath.Join(b.out, "results.json") }

func (b *bench) loadResults() {
	data, err := os.ReadFile(b.resultsFile())
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
		check(json.Unmarshal(data, &b.results))
	}
}

// record keeps a result and tells the user of it.
func (b *bench) record(r result, metrics ...string) {
	r.At, r.Revision, r.Machine = time.Now().UTC().Truncate(time.Second), b.revision, thisMachine()
	b.results = append(b.results, r)
	check(os.WriteFile(b.resultsFile(), must(json.MarshalIndent(b.results, "", "  ")), 0o644))
	text := ""
	for _, metric := range metrics {
		text += fmt.Sprintf("  %s %.2f", metric, r.Metrics[metric])
	}
	log.Printf("[%4.0f s] %-60s%s", time.Since(b.started).Seconds(), r.name(), text)
}

const (
	beginMark = "<!-- bench:begin, written by hack/campaigns/bench.sh -->"
	endMark   = "<!-- bench:end -->"
	missing   = "–"
	// plotFolder is beside the document.
	plotFolder = "performance"
)

// A row compares one number, of which less is better.
type row struct {
	title, goal string
	pick        func(*result) bool
	metric      string
	digits      int
	isCount     bool // compared as it is, without a ratio
}

func (b *bench) rows() []row {
	part := func(name string, foos int) func(*result) bool {
		return func(r *result) bool { return r.Part == name && r.Foos == foos }
	}
	converge, rate, cold := part("converge", b.converge), part("rate", b.rate), part("coldstart", b.coldStart)
	comparing := func(r *result) bool { return cold(r) && r.Compares }
	// Ours has one way to run.
	writing := func(r *result) bool { return cold(r) && (!r.Compares || r.Contender == "ours") }
	queue := func(workers int) func(*result) bool {
		return func(r *result) bool { return r.Part == "queue" && r.Workers == workers }
	}
	jsonMB := 0.0
	if i := slices.IndexFunc(b.results, func(r result) bool { return cold(&r) }); i >= 0 {
		jsonMB = b.results[i].Metrics["json_mb"]
	}
	work := fmt.Sprintf("converge %s Foos: ", thousands(b.converge))
	at := fmt.Sprintf("%d creates/s, %s Foos: ", b.perSecond, thousands(b.rate))
	start := fmt.Sprintf("cold start on %s Foos and their Deployments (%.0f MB of JSON): ", thousands(b.coldStart), jsonMB)
	return []row{
		{work + "CPU s", "≤ 0.30", converge, "cpu_s", 2, false},
		{"… converged after s", "≤ 0.75", converge, "span_s", 1, false},
		{"… CPU s of API server and etcd", "≤ 0.65", converge, "servers_cpu_s", 1, false},
		{"… Deployment writes per Foo", "1", converge, "deployment_writes_per_foo", 3, true},
		{"… status writes per Foo", "≤ 1.0", converge, "status_writes_per_foo", 2, true},
		{"… events per Foo", "0", converge, "events_per_foo", 2, true},
		{"… reads per Foo", missing, converge, "reads_per_foo", 3, true},
		{"… resident MB after", missing, converge, "resident_mb", 1, false},
		{start + "CPU s", "≤ 0.10", writing, "cpu_s", 2, false},
		{"… until quiet, s", missing, writing, "quiet_s", 1, false},
		{"… writes", "0", writing, "writes", 0, true},
		{"… peak resident MB", "≤ 26 MB", writing, "peak_mb", 1, false},
		{"the same, peers made to compare before they write: CPU s", "≤ 0.30", comparing, "cpu_s", 2, false},
		{"… until quiet, s", missing, comparing, "quiet_s", 1, false},
		{"… peak resident MB", missing, comparing, "peak_mb", 1, false},
		{at + "Deployment seen after, p50 ms", "≤ 0.8", rate, "p50_ms", 2, false},
		{"… p99 ms", "≤ 0.7", rate, "p99_ms", 2, false},
		{"… CPU s", missing, rate, "cpu_s", 2, false},
		{"queue, ns per add+get+done, 100,000 keys waiting: 1 worker", "≤ 1.00", queue(1), "ns_per_key", 0, false},
		{"… 4 workers", "≤ 1.00", queue(4), "ns_per_key", 0, false},
		{"… 16 workers", "≤ 1.00", queue(16), "ns_per_key", 0, false},
	}
}

// values are the row's numbers of one contender, sorted.
func (r *row) values(all []result, contender string) []float64 {
	var values []float64
	for i := range all {
		if value, ok := all[i].Metrics[r.metric]; ok && all[i].Contender == contender && r.pick(&all[i]) {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}

// table returns the table and its caption. It leaves out rows that nobody has results for.
func (b *bench) table() string {
	var t strings.Builder
	fmt.Fprintf(&t, "| work | ours ÷ best peer | goal | %s |\n|---|---|---|---|---|---|---|\n", strings.Join(names, " | "))
	var runs []int
	for _, row := range b.rows() {
		ours, best := math.NaN(), math.Inf(1)
		var cells []string
		for _, name := range names {
			values := row.values(b.results, name)
			cells = append(cells, spread(values, row.digits))
			if len(values) == 0 {
				continue
			}
			runs = append(runs, len(values))
			if name == "ours" {
				ours = median(values)
			} else {
				best = min(best, median(values))
			}
		}
		if math.IsNaN(ours) && math.IsInf(best, 1) {
			continue
		}
		ratio := missing
		if !math.IsNaN(ours) && !math.IsInf(best, 1) && best > 0 && !row.isCount {
			ratio = fmt.Sprintf("**%.2f**", ours/best)
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s |\n", row.title, ratio, row.goal, strings.Join(cells, " | "))
	}
	how := "One run"
	if fewest, most := slices.Min(append(runs, math.MaxInt)), slices.Max(append(runs, 0)); most > fewest {
		how = fmt.Sprintf("Median of %d to %d runs (smallest–largest)", fewest, most)
	} else if most > 1 {
		how = fmt.Sprintf("Median of %d runs (smallest–largest)", most)
	}
	return fmt.Sprintf("%s\n%s. %s; MB are 10⁶ bytes.\n", t.String(), origins(b.results), how)
}

// spread is the median and, of several runs that differ, the smallest and the largest.
func spread(sorted []float64, digits int) string {
	if len(sorted) == 0 {
		return missing
	}
	number := func(v float64) string {
		if digits == 0 {
			return thousands(int(math.Round(v)))
		}
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	text, low, high := number(median(sorted)), number(sorted[0]), number(sorted[len(sorted)-1])
	if low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	return text
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// origins returns the machine and the revision of most results, and those of the others.
func origins(all []result) string {
	of := map[string][]string{}
	for _, r := range all {
		key := fmt.Sprintf("%s (%s)", r.Machine, r.Revision)
		of[key] = append(of[key], r.Part+" of "+r.Contender)
	}
	keys := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(len(of[b])-len(of[a]), strings.Compare(a, b))
	})
	text := "Taken on " + keys[0]
	for _, key := range keys[1:] {
		slices.Sort(of[key])
		text += fmt.Sprintf("; %s on %s", strings.Join(slices.Compact(of[key]), ", "), key)
	}
	return text
}

func thisMachine() string {
	memory, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s, %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"),
		(memory+1<<19)>>20, strings.TrimSpace(string(kernel)), runtime.Version())
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

// writeReport replaces the table in the document and draws the plots beside it. Without a document
// it prints the table, and draws the plots beside the results.
func (b *bench) writeReport() {
	if len(b.results) == 0 {
		check(fmt.Errorf("no results in %s", b.resultsFile()))
	}
	if b.document == "" {
		writePlots(b.results, filepath.Join(b.out, plotFolder))
		fmt.Print(b.table())
		return
	}
	text := b.table()
	for _, p := range writePlots(b.results, filepath.Join(filepath.Dir(b.document), plotFolder)) {
		text += fmt.Sprintf("\n![%s](%s/%s)\n", p.title, plotFolder, p.file)
	}
	replaceBetweenMarks(b.document, text)
}

func replaceBetweenMarks(document, text string) {
	before, rest, found := strings.Cut(string(must(os.ReadFile(document))), beginMark)
	_, after, ends := strings.Cut(rest, endMark)
	if !found || !ends {
		check(fmt.Errorf("%s has no lines %q and %q", document, beginMark, endMark))
	}
	check(os.WriteFile(document, []byte(before+beginMark+"\n"+text+endMark+after), 0o644))
}
