package main

import (
	"fmt"
	"io"
	"maps"
	"net"
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

func auditLine(user, stage, verb, resource, subresource string, code int) string {
	return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":"system:serviceaccount:contenders:%s"},`+
		`"objectRef":{"resource":%q,"subresource":%q},"responseStatus":{"code":%d}}`+"\n",
		stage, verb, user, resource, subresource, code)
}

func TestRequestsAreCountedOnceByUserVerbAndResource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	first := auditLine("a", "ResponseComplete", "create", "deployments", "", 201) +
		auditLine("a", "ResponseComplete", "create", "deployments", "", 409) +
		auditLine("b", "ResponseComplete", "create", "deployments", "", 201) +
		auditLine("a", "ResponseStarted", "watch", "foos", "", 200)
	later := auditLine("a", "ResponseComplete", "update", "foos", "status", 200) +
		auditLine("a", "ResponseComplete", "watch", "foos", "", 200)
	cut := len(first) + 20 // the server is in the middle of a line
	all := first + later
	if err := os.WriteFile(path, []byte(all[:cut]), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := openAuditLog(path)
	if err != nil {
		t.Fatal(err)
	}
	const user = "system:serviceaccount:contenders:a"
	if counts, err := log.of(user); err != nil || counts["update foos/status"] != 0 || counts["create deployments"] != 2 {
		t.Fatalf("after the first part: %v %v", counts, err)
	}
	if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
		t.Fatal(err)
	}
	counts, err := log.of(user)
	want := map[string]int{"create deployments": 2, "watch foos": 1, "update foos/status": 1, "refused": 1}
	if err != nil || !maps.Equal(counts, want) {
		t.Fatalf("got %v %v, want %v", counts, err, want)
	}
	if n := total(counts); n != 4 {
		t.Errorf("%d requests in total, want 4", n)
	}
	if n := writes(counts); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
}

func TestTheRatioIsAgainstTheBestPeersMedian(t *testing.T) {
	var all []result
	add := func(contender string, seconds ...float64) {
		for i, s := range seconds {
			all = append(all, result{Scenario: "converge", Contender: contender, Run: i + 1,
				Parameters: map[string]int{"foos": 4000}, Metrics: map[string]float64{"cpu_s": s}})
		}
	}
	add("ours", 1, 9, 2)
	add("client-go", 5, 5, 5)
	add("kube-runtime", 3, 4, 100)
	for line := range strings.Lines(table(all)) {
		if strings.HasPrefix(line, "| converge 4,000 Foos: CPU s ") {
			const want = "| **0.50** | ≤ 0.33 | 2.00 (1.00–9.00) | 5.00 | – | 4.00 (3.00–100.00) |\n"
			if !strings.HasSuffix(line, want) {
				t.Errorf("got %s want … %s", line, want)
			}
			return
		}
	}
	t.Error("the table has no such row")
}

// converged is a result of converging 4,000 Foos that took so many CPU seconds.
func converged(contender string, workers, run int, cpu float64) result {
	return result{Scenario: "converge", Contender: contender, Run: run,
		Parameters: map[string]int{"foos": 4000, "workers": workers}, Metrics: map[string]float64{"cpu_s": cpu}}
}

// rowOf is the table's row that begins so, or empty.
func rowOf(all []result, title string) string {
	for line := range strings.Lines(table(all)) {
		if strings.HasPrefix(line, "| "+title) {
			return line
		}
	}
	return ""
}

func TestARowDoesNotMixNumbersOfWorkers(t *testing.T) {
	earlier, now := converged("ours", 8, 1, 9), converged("ours", 4, 1, 2)
	now.At = time.Unix(1, 0)
	row := rowOf([]result{now, earlier, converged("client-go", 8, 1, 5)}, "converge 4,000 Foos: CPU s")
	if want := "| – | ≤ 0.33 | 2.00 | – | – | – |\n"; !strings.HasSuffix(row, want) {
		t.Errorf("got %s want … %s", row, want)
	}
}

func TestARowThatNobodyMeasuredIsLeftOut(t *testing.T) {
	all := []result{converged("ours", 8, 1, 1), converged("kube-runtime", 8, 1, 4)}
	if row := rowOf(all, "cold start"); row != "" {
		t.Errorf("not measured, but there is a row: %s", row)
	}
	if row, want := rowOf(all, "converge"), "| **0.25** | ≤ 0.33 | 1.00 | – | – | 4.00 |\n"; !strings.HasSuffix(row, want) {
		t.Errorf("got %s want … %s", row, want)
	}
}

func TestACopyIsItsOwnObjectAsLongAsTheOriginal(t *testing.T) {
	const fooUID, deploymentUID = "c1b1a6f4-0000-4000-8000-000000000001", "c1b1a6f4-0000-4000-8000-000000000002"
	o := &original{name: fooName(0), fooUID: fooUID, deploymentUID: deploymentUID, stored: []put{
		{[]byte("/registry/foos/" + fooName(0)), []byte(`{"name":"foo-000000","uid":"` + fooUID + `"}`)},
		{[]byte("/registry/deployments/" + fooName(0)), []byte("k8s\x00foo-000000" + deploymentUID + "owner" + fooUID)},
	}}
	copies, others := o.copy(7), o.copy(8)
	for i, kind := range []string{"foos", "deployments"} {
		if key := string(copies[i].Key); key != "/registry/"+kind+"/foo-000007" {
			t.Errorf("the copy's key is %s", key)
		}
		value := string(copies[i].Value)
		if len(value) != len(o.stored[i].Value) || !strings.Contains(value, "foo-000007") {
			t.Errorf("a copy of %q is %q", o.stored[i].Value, value)
		}
		for _, former := range []string{o.name, fooUID, deploymentUID} {
			if strings.Contains(value, former) {
				t.Errorf("%q still has the original's %s", value, former)
			}
		}
		if value == strings.ReplaceAll(string(others[i].Value), "foo-000008", "foo-000007") {
			t.Errorf("two copies have the same UIDs: %s", value)
		}
	}
	own := string(copies[0].Value[len(`{"name":"foo-000007","uid":"`):][:len(fooUID)])
	if !strings.HasSuffix(string(copies[1].Value), "owner"+own) {
		t.Errorf("the copied Deployment is not owned by its Foo, %s: %q", own, copies[1].Value)
	}
}

func TestWhatIsMeasuredAgainReplacesAllItsEarlierRuns(t *testing.T) {
	store := results{folder: t.TempDir()}
	for run := 1; run <= 3; run++ {
		for _, name := range []string{"ours", "client-go"} {
			if err := store.add(converged(name, 8, run, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := store.add(result{Scenario: "rate", Contender: "ours"}); err != nil {
		t.Fatal(err)
	}
	if err := forget(store, "converge", "ours", []contender{{name: "ours"}}); err != nil {
		t.Fatal(err)
	}
	all, err := store.all()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Scenario == "converge" && r.Contender == "ours" {
			t.Errorf("%s of ours is still there", r.name())
		}
	}
	if len(all) != 4 {
		t.Errorf("%d results are left, want client-go's three and that of another part", len(all))
	}
}

func TestTheCaptionNamesEveryRevisionWithWhatItIsOf(t *testing.T) {
	var all []result
	add := func(scenario, contender, revision string, run int, day int64) {
		all = append(all, result{Scenario: scenario, Contender: contender, Run: run, Revision: revision,
			Machine: "1 × slow", At: time.Unix(day*24*60*60, 0).UTC()})
	}
	for run := 1; run <= 3; run++ {
		add("converge", "ours", "revision a", run, 0)
		add("converge", "client-go", "revision a", run, 0)
	}
	add("queue", "ours", "revision b", 1, 1)
	add("queue", "client-go", "revision a", 1, 0)
	const want = "Taken on 1 × slow: converge, queue of client-go (1970-01-01, revision a); " +
		"queue of ours (1970-01-02, revision b). Median of 1 to 3 runs (smallest–largest); MB are 10⁶ bytes.\n"
	if got := caption(all); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestARoundThatWouldEndTooLateIsLeftOutAsAWhole(t *testing.T) {
	both := []contender{{name: "ours"}, {name: "client-go"}}
	ran := func(began time.Duration, limit time.Duration) (done []string) {
		h := harness{started: time.Now().Add(-began), sizes: sizes{limit: limit}}
		for _, step := range h.interleaved(both, 2, "work", h.inTime(func(c contender, run int) (string, error) {
			done = append(done, fmt.Sprint(c.name, " ", run))
			return "", nil
		})) {
			if _, err := step.run(); err != nil {
				t.Fatal(err)
			}
		}
		return done
	}
	const early, late = time.Minute, 20*time.Minute - lastSteps
	first := []string{"ours 1", "client-go 1"}
	all := append(slices.Clone(first), "client-go 2", "ours 2")
	if got := ran(early, 20*time.Minute); !slices.Equal(got, all) {
		t.Errorf("with time for both rounds, %v ran, want %v", got, all)
	}
	if got := ran(late, 20*time.Minute); !slices.Equal(got, first) {
		t.Errorf("with time for one round, %v ran, want %v", got, first)
	}
	if got := ran(late, 0); !slices.Equal(got, all) {
		t.Errorf("without a limit, %v ran, want %v", got, all)
	}
}

func TestTheCaptionTellsOfRoundsThatWereLeftOut(t *testing.T) {
	var all []result
	for run := 1; run <= 3; run++ {
		all = append(all, result{Scenario: "coldstart", Contender: "client-go", Run: run,
			Parameters: map[string]int{"skip_unchanged": 1}})
	}
	all = append(all, result{Scenario: "coldstart", Contender: "client-go", Run: 1,
		Parameters: map[string]int{"skip_unchanged": 0}})
	if got := caption(all); !strings.Contains(got, "Median of 1 to 3 runs") {
		t.Errorf("three runs comparing and one writing, and the caption says: %s", got)
	}
}

func TestWatchesOfAnEarlierRunAreNotTheSessionsOwn(t *testing.T) {
	s := session{begun: map[string]int{"watch foos": 1, "watch deployments": 1}}
	if s.asked(map[string]int{"watch foos": 2, "watch deployments": 1}) {
		t.Error("it has not asked for Deployments yet")
	}
	if !s.asked(map[string]int{"watch foos": 2, "watch deployments": 2}) {
		t.Error("it has asked for both kinds")
	}
}

func TestTheProxyDelaysAnswersAndLosesNothing(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		connection, err := server.Accept()
		if err == nil {
			io.Copy(connection, connection)
			connection.Close()
		}
	}()
	const delay = 30 * time.Millisecond
	proxy, err := startDelayProxy(server.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.close()
	client, err := net.Dial("tcp", proxy.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sent := strings.Repeat("0123456789", 100_000)
	begin := time.Now()
	go func() {
		io.WriteString(client, sent)
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(client, got[:1]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("answered after %s, want at least %s", took, delay)
	}
	if _, err := io.ReadFull(client, got[1:]); err != nil || string(got) != sent {
		t.Errorf("what came back is not what was sent (%v)", err)
	}
}

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	document := filepath.Join(t.TempDir(), "doc.md")
	text := "before\n" + beginMark + "\nold\n" + endMark + "\nafter\n"
	if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replaceBetweenMarks(document, "new\n"); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(document)
	if want := strings.Replace(text, "old", "new", 1); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAContenderTooQuickForTheClockIsStillDrawn(t *testing.T) {
	for _, p := range plots() {
		drawn := p.svg([]line{{"ours", []point{{500, least}, {5000, least}}}})
		if !strings.Contains(drawn, "</svg>") || strings.Contains(drawn, "NaN") || strings.Contains(drawn, "Inf") {
			t.Errorf("%s of one value:\n%s", p.title, drawn)
		}
	}
	none := result{Scenario: "coldstart", Contender: "ours"}
	everything := plot{logarithmic: true, pick: func(*result) bool { return true },
		at: func(*result) float64 { return 500 }, value: func(*result) float64 { return 0 }}
	for _, l := range everything.lines([]result{none}) {
		if l.points[0].y <= 0 {
			t.Errorf("0 has no place on a logarithmic axis: %v", l.points)
		}
	}
}

func TestAWatchGoesOnBehindItsLastEventOrSaysThatItIsLost(t *testing.T) {
	const event = `{"type":"ADDED","object":{"metadata":{"name":"foo-%s","resourceVersion":%q}}}` + "\n"
	asked := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := r.URL.Query().Get("resourceVersion")
		asked <- from
		switch from {
		case "4":
			fmt.Fprintf(w, event, "a", "5")
		case "5":
			fmt.Fprintf(w, event, "b", "6")
		default:
			io.WriteString(w, `{"type":"ERROR","object":{"code":410,"message":"too old resource version"}}`+"\n")
		}
	}))
	defer server.Close()
	a := &api{t.Context(), &rest.Config{Host: server.URL}, server.Client()}
	var names []string
	lost := make(chan error, 1)
	handle := func(e *seen) { names = append(names, e.Object.Metadata.Name) }
	if err := a.watch(t.Context(), "/foos", "4", handle, func(err error) { lost <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; !strings.Contains(err.Error(), "too old resource version") {
		t.Fatalf("lost because of %v, want what the server said", err)
	}
	if want := []string{"foo-a", "foo-b"}; !slices.Equal(names, want) {
		t.Errorf("handled %v, want %v", names, want)
	}
	for _, want := range []string{"4", "5", "6"} {
		if from := <-asked; from != want {
			t.Errorf("watched from %s, want %s, the last event's", from, want)
		}
	}
}
