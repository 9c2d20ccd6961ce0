// Command measure runs the Foo controllers one after the other on the same work and records
// what each costs. hack/campaigns/bench.sh builds the programs and calls it.
//
// Guarantees
//   - Every contender gets the same flags, a control plane of only API server and etcd, and an
//     identity of its own for each run.
//   - CPU time and memory come from the kernel, requests from the API server's audit log, times
//     from watches of this program. No contender reports on itself.
//   - Contenders take turns. On a control plane, each round begins with another one.
//   - No control plane and no contender outlives this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sizes are the numbers that decide how long a run takes.
type sizes struct {
	runs            int           // of each row of the table
	limit           time.Duration // until the last round that may be left out ends; 0: none
	converge        int           // Foos created at once
	rate, perSecond int           // Foos created at a rate
	coldStart       int           // Foos in place in the table's row
	growth          []int         // Foos in place in the plots, each with a Deployment
	queueTime       string        // -benchtime of the Go queues
}

var (
	// full is for the document: about 25 minutes on 2 cores.
	full = sizes{
		runs: 3, limit: 19 * time.Minute, converge: 4000, rate: 2000, perSecond: 100, coldStart: 20000,
		growth: []int{500, 2500, 10000, 20000, 100000}, queueTime: "0.5s",
	}
	// small shows that everything works, not which contender is faster.
	small = sizes{
		runs: 1, converge: 200, rate: 200, perSecond: 100, coldStart: 1000,
		growth: []int{500, 1000}, queueTime: "0.2s",
	}
)

// parts of the work, in the order in which they are measured. The cold start comes last, because
// it leaves out rounds when time runs short.
var parts = []string{"converge", "rate", "queue", "coldstart"}

// A bench is one run of this program.
type bench struct {
	sizes
	ctx        context.Context
	contenders []contender
	wanted     []string // parts
	workers    int
	rounds     int // begun so far
	started    time.Time
	results    []result

	bins, ours, ourQueue, script, crd, out, document, revision string
}

// A failure ends the run. check panics with it, so that the deferred calls stop what was started.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("measure: ")
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case failure:
			log.Fatal(reason)
		default:
			panic(reason)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := bench{ctx: ctx, started: time.Now()}
	flag.StringVar(&b.bins, "bin", "", "folder with the peers' programs")
	flag.StringVar(&b.ours, "ours", "", "our program")
	flag.StringVar(&b.ourQueue, "our-queue", "", "our work queue's benchmark, built from benches/workqueue.rs")
	flag.StringVar(&b.script, "controlplane", "", "script that starts and stops a control plane")
	flag.StringVar(&b.crd, "crd", "", "the CustomResourceDefinition of Foo")
	flag.StringVar(&b.out, "out", "target/bench", "folder for results and logs")
	flag.StringVar(&b.document, "document", "", "Markdown file whose table is replaced; empty: the table is printed")
	flag.IntVar(&b.workers, "workers", 8, "workers of each contender")
	flag.StringVar(&b.revision, "revision", "", "what of ours is measured, for the record")
	quick := flag.Bool("quick", false, "small numbers, one run")
	runs := flag.Int("runs", 0, "runs of each row of the table (default 3, with -quick 1)")
	only := flag.String("only", strings.Join(parts, ","), "parts to measure, comma separated")
	who := flag.String("contenders", strings.Join(names, ","), "contenders to measure, comma separated")
	reportOnly := flag.Bool("report-only", false, "measures nothing, writes the table from earlier results")
	flag.Parse()

	b.sizes = full
	if *quick {
		b.sizes = small
	}
	if *runs > 0 { // The user wants all of them, however long they take.
		b.runs, b.limit = *runs, 0
	}
	b.loadResults()
	if !*reportOnly {
		b.choose(split(*only, parts), split(*who, names))
		b.measure()
	}
	b.writeReport()
}

// choose sets the parts and the contenders to measure, and drops their earlier results.
func (b *bench) choose(only, who []string) {
	b.wanted = only
	for _, c := range knownContenders(b.bins, b.ours) {
		if slices.Contains(who, c.name) {
			b.contenders = append(b.contenders, c)
		}
	}
	// The queue's part measures all contenders. Results with other workers fit no row any more.
	b.results = slices.DeleteFunc(b.results, func(r result) bool {
		return b.wants(r.Part) && (r.Part == "queue" || r.Workers != b.workers || slices.Contains(who, r.Contender))
	})
}

// split returns what a flag names between commas, all of which has to be known.
func split(flag string, known []string) []string {
	chosen := strings.Split(flag, ",")
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			check(fmt.Errorf("there is no %q, but: %s", name, strings.Join(known, " ")))
		}
	}
	return chosen
}

func (b *bench) wants(part string) bool { return slices.Contains(b.wanted, part) }

func (b *bench) measure() {
	if b.wants("converge") || b.wants("rate") {
		b.interleaved(b.contenders, b.runs, 0, b.measureCreates)
	}
	if b.wants("queue") {
		b.measureQueues()
	}
	if b.wants("coldstart") {
		b.measureColdStarts()
	}
	log.Printf("measured in %s", time.Since(b.started).Round(time.Second))
}

// interleaved measures all contenders once, then all again. It leaves out the rounds after the
// first that would end later than the limit.
func (b *bench) interleaved(all []contender, runs int, limit time.Duration, measure func(c contender, run int)) {
	var longest time.Duration
	for run := 1; run <= runs && len(all) > 0; run++ {
		began := time.Now()
		if run > 1 && limit > 0 && began.Sub(b.started)+longest > limit {
			log.Printf("runs %d to %d are left out, to end in time", run, runs)
			return
		}
		first := b.rounds % len(all)
		b.rounds++
		for _, c := range slices.Concat(all[first:], all[:first]) {
			measure(c, run)
		}
		longest = max(longest, time.Since(began))
	}
}
