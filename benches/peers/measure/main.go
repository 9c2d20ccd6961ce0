// Command measure runs the Foo controllers one after the other on the same work and records
// what each costs. hack/campaigns/bench.sh builds the programs and calls it.
//
// Guarantees
//   - Every contender gets the same flags and a control plane of only API server and etcd.
//   - CPU time and memory come from the kernel, requests from the API server's audit log, times
//     from watches of this program. No contender reports on itself.
//   - Contenders take turns. On a control plane, each round begins with another one.
//   - No control plane and no contender outlives this program: the first error ends it.
package main

import (
	"flag"
	"log"
	"slices"
	"strings"
	"time"
)

// sizes are the numbers that decide how long a run takes.
type sizes struct {
	runs            int    // of each row of the table
	converge        int    // Foos created at once
	rate, perSecond int    // Foos created at a rate
	status          int    // statuses that follow a Deployment, one at a time
	coldStart       int    // Foos in place in the table's row
	growth          []int  // Foos in place in the plots, each with a Deployment
	requests        int    // of each kind
	queueTime       string // -benchtime of the Go queues
}

var (
	// full is for the document.
	full = sizes{5, 4000, 2000, 100, 200, 20000, []int{500, 2500, 10000, 20000, 100000}, 1500, "0.5s"}
	// small shows that everything works, not which contender is faster.
	small = sizes{1, 200, 200, 100, 50, 1000, []int{500, 1000}, 100, "0.2s"}
)

// Where everything is below the working directory, which is the repository.
const (
	out  = "target/bench"
	bins = out + "/bin"
	crd  = "artifacts/examples/foo-crd.yaml"
)

// parts of the work, in the order in which they are measured.
var parts = []string{"requests", "converge", "rate", "status", "queue", "coldstart"}

// A bench is one run of this program.
type bench struct {
	sizes
	contenders, wanted []string // wanted parts
	rounds             int      // begun so far
	started            time.Time
	results            []result

	ours, ourQueue, script, document, takenOn string
}

// check ends the program on an error. The kernel ends the contender then, and the control plane's script sees it.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("measure: ")
	b := bench{started: time.Now()}
	b.parseFlags()
	b.checkMarks()
	if b.wants("requests") {
		b.measureRequests()
	}
	if b.wants("converge") || b.wants("rate") || b.wants("status") {
		b.interleaved(b.contenders, b.runs, b.measureCreates)
	}
	if b.wants("queue") {
		b.measureQueues()
	}
	if b.wants("coldstart") {
		b.measureColdStarts()
	}
	log.Printf("measured in %s", time.Since(b.started).Round(time.Second))
	b.writeReport()
}

func (b *bench) parseFlags() {
	flag.StringVar(&b.ours, "ours", "", "our program")
	flag.StringVar(&b.ourQueue, "our-queue", "", "our work queue's benchmark, built from benches/workqueue.rs")
	flag.StringVar(&b.script, "controlplane", "", "script that starts and stops a control plane")
	flag.StringVar(&b.document, "document", "", "Markdown file whose tables are replaced; empty: they are printed")
	flag.StringVar(&b.takenOn, "taken-on", "", "the machine and the revision, for the table's caption")
	quick := flag.Bool("quick", false, "small numbers, one run")
	runs := flag.Int("runs", 0, "runs of each row of the table; 0: the default")
	largest := flag.Int("growth", 0, "Foos of the largest cold start; 0: the default")
	only := flag.String("only", strings.Join(parts, ","), "parts to measure, comma separated")
	who := flag.String("contenders", strings.Join(names, ","), "contenders to measure, comma separated")
	flag.Parse()

	b.sizes = full
	if *quick {
		b.sizes = small
	}
	if *runs > 0 {
		b.runs = *runs
	}
	if *largest > 0 {
		smaller := slices.DeleteFunc(slices.Clone(b.growth), func(n int) bool { return n >= *largest })
		b.growth = append(smaller, *largest)
	}
	b.wanted, b.contenders = split(*only, parts), split(*who, names)
}

// split returns what a flag names between commas, all of which has to be known.
func split(flag string, known []string) []string {
	chosen := strings.Split(flag, ",")
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			log.Fatalf("there is no %q, but: %s", name, strings.Join(known, " "))
		}
	}
	return chosen
}

func (b *bench) wants(part string) bool { return slices.Contains(b.wanted, part) }

// interleaved measures all contenders once, then all again.
func (b *bench) interleaved(all []string, runs int, measure func(contender string, run int)) {
	for run := 1; run <= runs && len(all) > 0; run++ {
		first := b.rounds % len(all)
		b.rounds++
		for _, c := range slices.Concat(all[first:], all[:first]) {
			measure(c, run)
		}
	}
}
