package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A result is one run of one contender, or of one kind of request.
type result struct {
	Part, Contender, Request string
	Run, Foos                int
	Metrics                  map[string]float64
	Requests                 counts
}

func (r *result) name() string {
	if r.Request != "" {
		return r.Request
	}
	return fmt.Sprintf("%s-foos%d-run%d-%s", r.Part, r.Foos, r.Run, r.Contender)
}

// record keeps a result, in a file too, so that an aborted run is not lost.
func (b *bench) record(r result, metrics ...string) {
	b.results = append(b.results, r)
	check(os.WriteFile(filepath.Join(out, "results.json"), must(json.MarshalIndent(b.results, "", "  ")), 0o644))
	text := ""
	for _, metric := range metrics {
		text += fmt.Sprintf("  %s %.2f", metric, r.Metrics[metric])
	}
	log.Printf("[%4.0f s] %-60s%s", time.Since(b.started).Seconds(), r.name(), text)
}

const missing = "–"

// A row compares one number, of which less is better.
type row struct {
	title, part, metric string
	digits              int
	isCount             bool // compared as it is, without a ratio
}

func (b *bench) rows() []row {
	work := fmt.Sprintf("converge %s Foos: ", thousands(b.converge))
	at := fmt.Sprintf("%d creates/s, %s Foos: ", b.perSecond, thousands(b.rate))
	start := fmt.Sprintf("cold start on %s Foos and their Deployments: ", thousands(b.coldStart))
	return []row{
		{work + "CPU s", "converge", "cpu_s", 2, false},
		{"… converged after s", "converge", "span_s", 1, false},
		{"… CPU s of API server and etcd", "converge", "servers_cpu_s", 1, false},
		{"… Deployment writes per Foo", "converge", "deployment_writes_per_foo", 3, true},
		{"… status writes per Foo", "converge", "status_writes_per_foo", 2, true},
		{"… events per Foo", "converge", "events_per_foo", 2, true},
		{"… reads per Foo", "converge", "reads_per_foo", 3, true},
		{"… resident MB after", "converge", "resident_mb", 1, false},
		{start + "CPU s", "coldstart-writing", "cpu_s", 2, false},
		{"… until quiet, s", "coldstart-writing", "quiet_s", 1, false},
		{"… writes", "coldstart-writing", "writes", 0, true},
		{"… peak resident MB", "coldstart-writing", "peak_mb", 1, false},
		{"the same, peers made to compare before they write: CPU s", "coldstart", "cpu_s", 2, false},
		{"… until quiet, s", "coldstart", "quiet_s", 1, false},
		{"… peak resident MB", "coldstart", "peak_mb", 1, false},
		{at + "Deployment seen after, p50 ms", "rate", "p50_ms", 2, false},
		{"… p99 ms", "rate", "p99_ms", 2, false},
		{"… CPU s", "rate", "cpu_s", 2, false},
		{"a Foo's status follows its Deployment, nothing else changes: p50 ms", "status", "p50_ms", 2, false},
		{"… p99 ms", "status", "p99_ms", 2, false},
		{"queue, ns per add+get+done, 100,000 keys waiting: 1 worker", "queue-1", "ns_per_key", 0, false},
		{"… 4 workers", "queue-4", "ns_per_key", 0, false},
		{"… 16 workers", "queue-16", "ns_per_key", 0, false},
	}
}

// values are the row's numbers of one contender, sorted. Ours has one way to run a cold start.
func (r *row) values(all []result, contender string) []float64 {
	part := r.part
	if contender == ours {
		part = strings.TrimSuffix(part, "-writing")
	}
	var values []float64
	for _, one := range all {
		if one.Part == part && one.Contender == contender {
			values = append(values, one.Metrics[r.metric])
		}
	}
	slices.Sort(values)
	return values
}

// line is the row of the table, or nothing if nobody has results for it.
func (r *row) line(all []result) string {
	own, best := math.NaN(), math.Inf(1)
	var cells []string
	for _, name := range names {
		values := r.values(all, name)
		cells = append(cells, spread(values, r.digits))
		if len(values) > 0 && name == ours {
			own = median(values)
		} else if len(values) > 0 {
			best = min(best, median(values))
		}
	}
	if math.IsNaN(own) && math.IsInf(best, 1) {
		return ""
	}
	ratio := missing
	if !math.IsNaN(own) && !math.IsInf(best, 1) && best > 0 && !r.isCount {
		ratio = fmt.Sprintf("**%.2f**", own/best)
	}
	return fmt.Sprintf("| %s | %s | %s |\n", r.title, ratio, strings.Join(cells, " | "))
}

// table has the rows that there are results for, and a caption.
func (b *bench) table() string {
	text := ""
	for _, row := range b.rows() {
		text += row.line(b.results)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("| work | ours ÷ best peer | %s |\n|---|---|---|---|---|---|\n%s\n"+
		"Taken on %s. Median of %d runs (smallest–largest); MB are 10⁶ bytes.\n", strings.Join(names, " | "), text, b.takenOn, b.runs)
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

// writeReport replaces the tables in the document and draws the plots, in a folder next to it. Without
// a document it prints the tables, and draws the plots next to the results.
func (b *bench) writeReport() {
	const plotFolder = "performance"
	if b.document == "" {
		drawPlots(b.results, filepath.Join(out, plotFolder))
		fmt.Print(b.table(), b.requestsTable())
		return
	}
	text := b.table()
	for _, p := range drawPlots(b.results, filepath.Join(filepath.Dir(b.document), plotFolder)) {
		text += fmt.Sprintf("\n![%s](%s/%s)\n", p.title, plotFolder, p.file)
	}
	replaceBetweenMarks(b.document, "bench", text)
	replaceBetweenMarks(b.document, "requests", b.requestsTable())
}

// checkMarks finds out before the work whether the document has a place for the results.
func (b *bench) checkMarks() {
	if b.document != "" {
		aroundMarks(b.document, "bench")
		aroundMarks(b.document, "requests")
	}
}

func replaceBetweenMarks(document, name, text string) {
	before, after := aroundMarks(document, name)
	check(os.WriteFile(document, []byte(before+text+after), 0o644))
}

// aroundMarks returns what is before and what is after the text between two marks, with the marks.
func aroundMarks(document, name string) (before, after string) {
	begin, end := fmt.Sprintf("<!-- %s:begin, written by hack/campaigns/bench.sh -->\n", name), fmt.Sprintf("<!-- %s:end -->", name)
	before, rest, begins := strings.Cut(string(must(os.ReadFile(document))), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		log.Fatalf("%s has no lines %q and %q", document, begin, end)
	}
	return before + begin, end + after
}
