package main

import (
	"path/filepath"
	"strconv"
)

// A contender is a Foo controller. To add one, add it to the list below.
type contender struct {
	name    string
	program string
	// skipUnchanged: it can be told to write no status that is there already. Ours always does so.
	skipUnchanged bool
	// firstZero: told so, it still writes a first 0, so it is told so in work that begins without a
	// status, too. The Go peers take a status that is not there for one that says 0, and a Foo would
	// never get one.
	firstZero bool
	// ownWorkers: it has no flag for the number of workers.
	ownWorkers bool
	extra      []string
}

func contenders(bins, ours string) []contender {
	return []contender{
		{name: "ours", program: ours},
		{name: "client-go", program: filepath.Join(bins, "client-go"), skipUnchanged: true},
		{name: "controller-runtime", program: filepath.Join(bins, "controller-runtime"), skipUnchanged: true},
		{name: "kube-runtime", program: filepath.Join(bins, "kube-runtime"), skipUnchanged: true, firstZero: true},
	}
}

// sampleController is k8s.io/sample-controller as its authors ship it: two workers, five
// requests a second.
func sampleController(bins string) contender {
	return contender{name: "sample-controller", program: filepath.Join(bins, "sample-controller"), ownWorkers: true}
}

func (c contender) command(kubeconfig string, workers int, skipUnchanged bool) []string {
	command := []string{c.program, "--kubeconfig=" + kubeconfig}
	if !c.ownWorkers {
		command = append(command, "--workers="+strconv.Itoa(workers))
	}
	if skipUnchanged && c.skipUnchanged {
		command = append(command, "--skip-unchanged")
	}
	return append(command, c.extra...)
}
