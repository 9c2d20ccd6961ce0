// Command measure runs the Foo controllers one after the other on the same work and writes down
// what each cost. hack/bench.sh builds everything and calls it.
//
// Guarantees
//   - Every contender gets the same flags, the same fresh control plane (API server and etcd
//     only) and an identity of its own, so that each request counted is its own.
//   - CPU time and memory come from the kernel, requests from the API server's audit log,
//     times from watches of this program: nothing is asked of the contender itself.
//   - Runs are interleaved (all contenders once, then all again), so that a machine that slows
//     down does so for everybody; and each round begins with another contender.
//   - Whatever ends it, no control plane and no contender is left running.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("measure: ")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	var (
		bins         = flag.String("bin", "", "folder with the peers' programs")
		ourQueue     = flag.String("our-queue", "", "our work queue's benchmark, built from benches/workqueue.rs")
		ours         = flag.String("ours", "", "our program")
		script       = flag.String("controlplane", "hack/controlplane.sh", "starts and stops a control plane")
		crd          = flag.String("crd", "artifacts/examples/foo-crd.yaml", "the CustomResourceDefinition of Foo")
		out          = flag.String("out", "target/bench", "folder for results and logs")
		document     = flag.String("document", "", "Markdown file whose table is replaced; empty: the table is printed")
		quick        = flag.Bool("quick", false, "small numbers, one run: shows that all of it works")
		runs         = flag.Int("runs", 0, "runs of each row of the table (default 3, with -quick 1)")
		only         = flag.String("only", "", "these parts, comma separated: "+strings.Join(partNames(), " "))
		who          = flag.String("contenders", "", "these contenders, comma separated")
		reportOnly   = flag.Bool("report-only", false, "measure nothing, write the table from earlier results")
		workers      = flag.Int("workers", 8, "workers of each contender")
		revision     = flag.String("revision", "", "what of ours is measured, for the record")
		showCommands = flag.Bool("list", false, "list contenders and parts")
	)
	flag.Parse()
	all := contenders(*bins, *ours)
	if *showCommands {
		for _, c := range all {
			fmt.Println(c.name, strings.Join(c.command("KUBECONFIG", *workers, false), " "))
		}
		return nil
	}
	store := results{folder: *out + "/results", revision: *revision}
	if !*reportOnly {
		chosen, err := choose(all, *who)
		if err != nil {
			return err
		}
		if err := forget(store, *only, *who, chosen); err != nil {
			return err
		}
		h := &harness{
			ctx: ctx, contenders: chosen, sample: sampleController(*bins), bins: *bins, ourQueue: *ourQueue,
			script: *script, crd: *crd, out: *out, workers: *workers, results: store,
			sizes: full, started: time.Now(),
		}
		if *quick {
			h.sizes = small
		}
		if *runs > 0 { // asked for, so that many
			h.sizes.runs, h.sizes.limit = *runs, 0
		}
		if err := h.runParts(*only); err != nil {
			return err
		}
		log.Printf("measured in %s", time.Since(h.started).Round(time.Second))
	}
	return writeReport(store, *document)
}

// forget removes the earlier results of what is measured now.
func forget(store results, only, who string, chosen []contender) error {
	if only == "" && who == "" {
		return store.clear()
	}
	parts := partNames()
	if only != "" {
		parts = list(only)
	}
	var names []string
	for _, c := range chosen {
		names = append(names, c.name)
	}
	return store.remove(parts, names)
}

// list splits what a flag has between commas.
func list(flag string) []string {
	return strings.FieldsFunc(flag, func(r rune) bool { return r == ',' })
}

// choose picks contenders by name; programs that were not built are left out with a word.
func choose(all []contender, names string) ([]contender, error) {
	var chosen []contender
	wanted := list(names)
	for _, c := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, c.name) {
			continue
		}
		if _, err := os.Stat(c.program); err != nil {
			log.Printf("%s is left out: there is no %s", c.name, c.program)
			continue
		}
		chosen = append(chosen, c)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no contender is left to measure (known: client-go, controller-runtime, kube-runtime, ours)")
	}
	return chosen, nil
}
