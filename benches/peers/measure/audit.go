package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// An auditLog counts the requests of each user, by verb and resource, while the API server
// writes its log.
type auditLog struct {
	file *os.File
	// rest is the beginning of a line that is not complete yet.
	rest   []byte
	counts map[string]map[string]int
}

type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func openAuditLog(path string) (*auditLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &auditLog{file: file, counts: map[string]map[string]int{}}, nil
}

// read takes in what was logged since the last call.
func (a *auditLog) read() error {
	fresh, err := io.ReadAll(a.file)
	if err != nil {
		return err
	}
	data := append(a.rest, fresh...)
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			break
		}
		// Only the contenders' lines are worth decoding.
		if line := data[:end]; bytes.Contains(line, []byte(`"system:serviceaccount:`+identities+`:`)) {
			var event auditEvent
			if err := json.Unmarshal(line, &event); err != nil {
				return err
			}
			a.count(&event)
		}
		data = data[end+1:]
	}
	a.rest = bytes.Clone(data)
	return nil
}

func (a *auditLog) count(event *auditEvent) {
	// A watch is answered when it starts; all else when it is complete.
	if (event.Verb == "watch") != (event.Stage == "ResponseStarted") {
		return
	}
	what := event.Verb + " " + event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		what += "/" + event.ObjectRef.Subresource
	}
	counts := a.counts[event.User.Username]
	if counts == nil {
		counts = map[string]int{}
		a.counts[event.User.Username] = counts
	}
	counts[what]++
	if event.ResponseStatus.Code >= 400 {
		counts["refused"]++
	}
}

// of is a copy of one user's counts, "create deployments" and so on; "refused" are those among
// them that got an error.
func (a *auditLog) of(user string) (map[string]int, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for what, n := range a.counts[user] {
		counts[what] = n
	}
	return counts, nil
}

func total(counts map[string]int) int {
	sum := 0
	for what, n := range counts {
		if what != "refused" {
			sum += n
		}
	}
	return sum
}

func minus(after, before map[string]int) map[string]int {
	difference := map[string]int{}
	for what, n := range after {
		if n -= before[what]; n != 0 {
			difference[what] = n
		}
	}
	return difference
}
