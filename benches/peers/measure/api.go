package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// api speaks to the API server with as little work of its own as possible, because it shares
// the machine with what is measured: JSON over a few HTTP/1.1 connections.
type api struct {
	ctx    context.Context
	config *rest.Config
	http   *http.Client
}

func newAPI(ctx context.Context, config *rest.Config) (*api, error) {
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:     secured,
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
	}
	return &api{ctx, config, &http.Client{Transport: transport}}, nil
}

type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func (a *api) open(ctx context.Context, method, path, contentType string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.config.Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if a.config.BearerToken != "" {
		request.Header.Set("Authorization", "Bearer "+a.config.BearerToken)
	}
	request.Header.Set("User-Agent", "measure")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 2000))
		return nil, &statusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, text)}
	}
	return response.Body, nil
}

func (a *api) call(method, path, contentType string, body []byte) ([]byte, error) {
	reply, err := a.open(a.ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	return io.ReadAll(reply)
}

func (a *api) post(path string, object any) ([]byte, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return a.call(http.MethodPost, path, "application/json", body)
}

// size is the length of the JSON of everything in a collection, as a client without pages gets it.
func (a *api) size(path string) (int64, error) {
	reply, err := a.open(a.ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return 0, err
	}
	defer reply.Close()
	return io.Copy(io.Discard, reply)
}

// version of a collection now, to watch from.
func (a *api) version(path string) (string, error) {
	reply, err := a.call(http.MethodGet, path+"?limit=1", "", nil)
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(reply, &list)
	return list.Metadata.ResourceVersion, err
}

// seen is the part of a watch event that is looked at.
type seen struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Status struct {
			AvailableReplicas *int32 `json:"availableReplicas"`
		} `json:"status"`
	} `json:"object"`
}

// watch calls handle for each event until the context ends. A watch that the API server ends, as it
// does with one that reads too slowly, goes on behind the last event; one that cannot is told to
// lost, since nothing that is counted by it is true any more.
func (a *api) watch(ctx context.Context, path, from string, handle func(*seen), lost func(error)) error {
	open := func() (io.ReadCloser, error) {
		return a.open(ctx, http.MethodGet, path+"?watch=1&timeoutSeconds=3600&resourceVersion="+from, "", nil)
	}
	stream, err := open()
	if err != nil {
		return err
	}
	go func() {
		for err == nil {
			if from, err = follow(stream, from, handle); err == nil {
				stream, err = open()
			}
		}
		if ctx.Err() == nil {
			lost(fmt.Errorf("the watch of %s was lost: %w", path, err))
		}
	}()
	return nil
}

// follow handles the events of one watch until it ends, and returns the version of the last one.
func follow(stream io.ReadCloser, from string, handle func(*seen)) (string, error) {
	defer stream.Close()
	lines := bufio.NewReaderSize(stream, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return from, nil
		}
		var event seen
		if err := json.Unmarshal(line, &event); err != nil {
			return from, err
		}
		if event.Type == "ERROR" {
			return from, errors.New(string(line))
		}
		from = event.Object.Metadata.ResourceVersion
		handle(&event)
	}
}
