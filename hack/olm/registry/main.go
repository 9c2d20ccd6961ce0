// Serves the file-based catalog in a folder over gRPC, as `opm serve` does, but on loopback alone and
// at a port that nobody else has. It logs that address once it answers, and runs until it is
// killed. (opm itself brings along everything that images are copied with.)
package main

import (
	"context"
	"log"
	"net"
	"os"

	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/cache"
	"github.com/operator-framework/operator-registry/pkg/server"
	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: registry CATALOG_FOLDER CACHE_FOLDER")
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func serve(catalog, cacheFolder string) error {
	store, err := cache.New(cacheFolder)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := cache.LoadOrRebuild(context.Background(), store, os.DirFS(catalog)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	registry := grpc.NewServer()
	api.RegisterRegistryServer(registry, server.NewRegistryServer(store))
	health.RegisterHealthServer(registry, server.NewHealthServer())
	log.Printf("serving on %s", listener.Addr())
	return registry.Serve(listener)
}
