package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// An auditLog counts the requests of each contender while the API server writes its log.
type auditLog struct {
	file   *os.File
	rest   []byte            // the beginning of an incomplete line
	counts map[string]counts // by user name
}

// counts of requests by verb and resource, "create deployments" and so on.
type counts map[string]int

func openAuditLog(path string) *auditLog {
	return &auditLog{file: must(os.Open(path)), counts: map[string]counts{}}
}

// of returns the counts of one user.
func (a *auditLog) of(user string) counts {
	lines := bytes.Split(append(a.rest, must(io.ReadAll(a.file))...), []byte("\n"))
	for _, line := range lines[:len(lines)-1] {
		// Only the contenders' lines are worth decoding.
		if bytes.Contains(line, []byte(`"`+userPrefix)) {
			a.count(line)
		}
	}
	a.rest = bytes.Clone(lines[len(lines)-1])
	return maps.Clone(a.counts[user])
}

func (a *auditLog) count(line []byte) {
	var event struct {
		Stage, Verb string
		User        struct{ Username string }
		ObjectRef   struct{ Resource, Subresource string }
	}
	check(json.Unmarshal(line, &event))
	// The API server answers a watch when it starts, and everything else when it is complete.
	if (event.Verb == "watch") != (event.Stage == "ResponseStarted") {
		return
	}
	what := event.Verb + " " + event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		what += "/" + event.ObjectRef.Subresource
	}
	if a.counts[event.User.Username] == nil {
		a.counts[event.User.Username] = counts{}
	}
	a.counts[event.User.Username][what]++
}

// sum adds up the requests of some verbs for a resource; nil and "" are all.
func (c counts) sum(verbs []string, resource string) int {
	sum := 0
	for what, n := range c {
		verb, of, _ := strings.Cut(what, " ")
		if (verbs == nil || slices.Contains(verbs, verb)) && (resource == "" || resource == of) {
			sum += n
		}
	}
	return sum
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

func (c counts) total() int { return c.sum(nil, "") }

// writes are all requests that change something, events included.
func (c counts) writes() int { return c.sum(writeVerbs, "") }

// since returns what was added after earlier counts.
func (c counts) since(before counts) counts {
	difference := counts{}
	for what, n := range c {
		if n > before[what] {
			difference[what] = n - before[what]
		}
	}
	return difference
}
