package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestRequestsAreCountedOnceByUserVerbAndResource(t *testing.T) {
	line := func(user, stage, verb, resource, subresource string) string {
		return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":"system:serviceaccount:contenders:%s"},`+
			`"objectRef":{"resource":%q,"subresource":%q}}`+"\n", stage, verb, user, resource, subresource)
	}
	first := line("a", "ResponseComplete", "create", "deployments", "") +
		line("a", "ResponseComplete", "create", "deployments", "") +
		line("b", "ResponseComplete", "create", "deployments", "") +
		line("a", "ResponseStarted", "watch", "foos", "")
	all := first + line("a", "ResponseComplete", "update", "foos", "status") +
		line("a", "ResponseComplete", "watch", "foos", "")
	path := filepath.Join(t.TempDir(), "audit.log")
	check(os.WriteFile(path, []byte(all[:len(first)+20]), 0o644)) // The server is in the middle of a line.
	log := openAuditLog(path)
	before := log.of(userPrefix + "a")
	if want := (counts{"create deployments": 2, "watch foos": 1}); !maps.Equal(before, want) {
		t.Errorf("after the first part: %v, want %v", before, want)
	}
	check(os.WriteFile(path, []byte(all), 0o644))
	after := log.of(userPrefix + "a")
	if want := (counts{"update foos/status": 1}); !maps.Equal(after.since(before), want) {
		t.Errorf("in the second part: %v, want %v", after.since(before), want)
	}
	if after.total() != 4 || after.writes() != 3 || after.sum(writeVerbs, "deployments") != 2 {
		t.Errorf("%d requests, %d writes, %d of Deployments, want 4, 3 and 2", after.total(), after.writes(),
			after.sum(writeVerbs, "deployments"))
	}
}

func TestCPUTimeAndMemoryAreReadFromProc(t *testing.T) {
	const stat = "7 (a ) (b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 1 0 100 9000 500"
	got := parseUsage(stat, "Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
	if want := (usage{3 * time.Second, 1 << 20, 2 << 20}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// converged are runs of converging that took so many CPU seconds.
func converged(contender string, seconds ...float64) (runs []result) {
	for i, s := range seconds {
		runs = append(runs, result{Part: "converge", Contender: contender, Run: i + 1, Workers: 8, Foos: 4000,
			Machine: "1 × slow", Revision: "revision a", Metrics: map[string]float64{"cpu_s": s}})
	}
	return runs
}

func TestTheTableComparesMediansWithTheBestPeers(t *testing.T) {
	b := bench{sizes: full, results: slices.Concat(converged("ours", 1, 9, 2), converged("client-go", 5, 5, 5), converged("kube-runtime", 3, 100))}
	cold := func(contender string, compares bool, cpu float64) {
		b.results = append(b.results, result{Part: "coldstart", Contender: contender, Foos: 20000, Compares: compares,
			Machine: "1 × slow", Revision: "revision b", Metrics: map[string]float64{"cpu_s": cpu, "json_mb": 54}})
	}
	cold("ours", true, 1)
	cold("client-go", true, 2)
	cold("client-go", false, 10)
	const want = `| work | ours ÷ best peer | goal | ours | client-go | controller-runtime | kube-runtime |
|---|---|---|---|---|---|---|
| converge 4,000 Foos: CPU s | **0.40** | ≤ 0.30 | 2.00 (1.00–9.00) | 5.00 | – | 51.50 (3.00–100.00) |
| cold start on 20,000 Foos and their Deployments (54 MB of JSON): CPU s | **0.10** | ≤ 0.10 | 1.00 | 10.00 | – | – |
| the same, peers made to compare before they write: CPU s | **0.50** | ≤ 0.30 | 1.00 | 2.00 | – | – |

Taken on 1 × slow (revision a); ` +
		"coldstart of client-go, coldstart of ours on 1 × slow (revision b). " +
		"Median of 1 to 3 runs (smallest–largest); MB are 10⁶ bytes.\n"
	if got := b.table(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWhatIsMeasuredAgainReplacesAllItsEarlierRuns(t *testing.T) {
	b := bench{out: t.TempDir()}
	for _, r := range slices.Concat(converged("ours", 1, 2), converged("client-go", 3), []result{{Part: "rate"}}) {
		b.record(r)
	}
	again := bench{out: b.out, workers: 8}
	again.loadResults()
	again.choose([]string{"converge"}, []string{"ours"})
	if len(again.results) != 2 || again.results[0].Contender != "client-go" || again.results[1].Part != "rate" {
		t.Errorf("left are %v, want client-go's and those of another part", again.results)
	}
}

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	document := filepath.Join(t.TempDir(), "doc.md")
	text := "before\n" + beginMark + "\nold\n" + endMark + "\nafter\n"
	check(os.WriteFile(document, []byte(text), 0o644))
	replaceBetweenMarks(document, "new\n")
	if got, want := string(must(os.ReadFile(document))), strings.Replace(text, "old", "new", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestThePlotHasEachContendersMedians(t *testing.T) {
	var all []result
	for _, run := range []point{{500, 10}, {500, 1000}, {500, 100}, {5000, 0}} {
		all = append(all, result{Part: "coldstart", Contender: "ours", Foos: int(run.x), Compares: true,
			Metrics: map[string]float64{"peak_mb": run.y}})
	}
	lines := plots[0].lines(all)
	if len(lines) != 1 || !slices.Equal(lines[0].points, []point{{1000, 100}, {10000, least}}) {
		t.Fatalf("the lines are %v", lines)
	}
	// 0 is drawn as 0.01. From there to 100 and from 1,000 to 10,000 objects the line crosses the whole area.
	drawn := plots[0].svg(lines)
	want := fmt.Sprintf(`<polyline points="%d.0,%d.0 %d.0,%d.0"`, left, top, right, bottom)
	if !strings.Contains(drawn, want) || !strings.HasSuffix(drawn, "</svg>\n") || strings.Contains(drawn, "NaN") {
		t.Errorf("want %s in\n%s", want, drawn)
	}
}

func TestAWatchGoesOnBehindItsLastEventOrSaysThatItIsLost(t *testing.T) {
	const added = `{"type":"ADDED","object":{"metadata":{"name":"foo-%s","resourceVersion":%q}}}` + "\n"
	answers := map[string]string{"4": fmt.Sprintf(added, "a", "5"), "5": fmt.Sprintf(added, "b", "6"),
		"6": `{"type":"ERROR","object":{"code":410,"message":"too old"}}` + "\n"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, answers[r.URL.Query().Get("resourceVersion")])
	}))
	defer server.Close()
	var names []string
	lost := make(chan error, 1)
	handle := func(e *event) { names = append(names, e.Object.Metadata.Name) }
	check(newAPI(t.Context(), &rest.Config{Host: server.URL}).watch(t.Context(), "/foos", "4", handle, lost))
	if err := <-lost; !strings.Contains(err.Error(), "too old") {
		t.Errorf("lost because of %v, want what the server said", err)
	}
	if want := []string{"foo-a", "foo-b"}; !slices.Equal(names, want) {
		t.Errorf("handled %v, want %v", names, want)
	}
}
