package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

func TestRequestsOfContendersAreCountedOnceByVerbAndResource(t *testing.T) {
	line := func(user, agent, stage, verb, resource, subresource string) string {
		return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":%q},"userAgent":%q,`+
			`"objectRef":{"resource":%q,"subresource":%q}}`+"\n", stage, verb, user, agent, resource, subresource)
	}
	first := line("admin", "peer", "ResponseComplete", "create", "deployments", "") +
		line("admin", userAgent, "ResponseComplete", "create", "foos", "") +
		line("system:apiserver", "kube-apiserver", "ResponseComplete", "create", "deployments", "") +
		line("admin", "peer", "ResponseStarted", "watch", "foos", "")
	all := first + line("admin", "", "ResponseComplete", "update", "foos", "status") +
		line("admin", "peer", "ResponseComplete", "watch", "foos", "")
	path := filepath.Join(t.TempDir(), "audit.log")
	check(os.WriteFile(path, []byte(all[:len(first)+20]), 0o644)) // The server is in the middle of a line.
	log := openAuditLog(path)
	before := log.read()
	if want := (counts{"create deployments": 1, "watch foos": 1}); !maps.Equal(before, want) {
		t.Errorf("after the first part: %v, want %v", before, want)
	}
	check(os.WriteFile(path, []byte(all), 0o644))
	after := log.read()
	if added := after.since(before); added["update foos/status"] != 1 || added.total() != 1 {
		t.Errorf("in the second part: %v, want one update", added)
	}
	if after.writes("") != 2 || after.writes("deployments") != 1 {
		t.Errorf("%d writes, %d of Deployments, want 2 and 1", after.writes(""), after.writes("deployments"))
	}
}

func TestARowComparesMediansWithTheBestPeer(t *testing.T) {
	var all []result
	for contender, runs := range map[string][]float64{"ours": {1, 9, 2}, "client-go": {5, 5, 5}, "kube-runtime": {3, 100}} {
		for _, cpu := range runs {
			all = append(all, result{Part: "converge", Contender: contender, Metrics: map[string]float64{"cpu_s": cpu}})
		}
	}
	b := bench{sizes: full}
	const want = "| converge 4,000 Foos: CPU s | **0.40** | 2.00 (1.00–9.00) | 5.00 | – | 51.50 (3.00–100.00) |\n"
	if got := b.rows()[0].line(all); got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	document := filepath.Join(t.TempDir(), "doc.md")
	const text = "before\n<!-- bench:begin, written by hack/campaigns/bench.sh -->\nold\n<!-- bench:end -->\nafter\n"
	check(os.WriteFile(document, []byte(text), 0o644))
	replaceBetweenMarks(document, "bench", "new\n")
	if got, want := string(must(os.ReadFile(document))), strings.Replace(text, "old", "new", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPlotHasAContendersMedians(t *testing.T) {
	var all []result
	for _, run := range []plotter.XY{{X: 500, Y: 10}, {X: 500, Y: 1000}, {X: 500, Y: 100}, {X: 5000, Y: 0}} {
		all = append(all, result{Part: "coldstart", Contender: "ours", Foos: int(run.X),
			Metrics: map[string]float64{"peak_mb": run.Y}})
	}
	want := plotter.XYs{{X: 1000, Y: 100}, {X: 10000, Y: least}}
	if got := growths[0].points(all, "ours"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
