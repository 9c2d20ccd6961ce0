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

// An auditLog counts the requests of contenders while the API server writes its log. Contenders and
// this program are both the administrator; userAgent is what only this program says.
type auditLog struct {
	file   *os.File
	rest   []byte // the beginning of an incomplete line
	counts counts
}

// counts of requests by verb and resource, "create deployments" and so on.
type counts map[string]int

func openAuditLog(path string) *auditLog {
	return &auditLog{file: must(os.Open(path)), counts: counts{}}
}

func (a *auditLog) read() counts {
	lines := bytes.Split(append(a.rest, must(io.ReadAll(a.file))...), []byte("\n"))
	for _, line := range lines[:len(lines)-1] {
		if bytes.Contains(line, []byte(`"username":"admin"`)) && !bytes.Contains(line, []byte(`"userAgent":"`+userAgent+`"`)) {
			a.count(line)
		}
	}
	a.rest = bytes.Clone(lines[len(lines)-1])
	return maps.Clone(a.counts)
}

func (a *auditLog) count(line []byte) {
	var event struct {
		Stage, Verb string
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
	a.counts[what]++
}

func (c counts) total() (sum int) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// writes are the requests that change a resource; "" is all of them, events included.
func (c counts) writes(resource string) (sum int) {
	for what, n := range c {
		verb, of, _ := strings.Cut(what, " ")
		if !slices.Contains([]string{"get", "list", "watch"}, verb) && (resource == "" || resource == of) {
			sum += n
		}
	}
	return sum
}

// since returns what was added after earlier counts.
func (c counts) since(before counts) counts {
	added := maps.Clone(c)
	for what, n := range before {
		added[what] -= n
	}
	return added
}
