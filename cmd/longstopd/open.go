package main

import (
	"context"
	"log/slog"

	"github.com/longstop/longstop/internal/api"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
)

// open chooses the hands of the gateway of a home.
func open(home client.Home, log *slog.Logger) (api.Gateway, func(), error) {
	binaries, err := runners()
	if err != nil {
		return nil, nil, err
	}
	g, err := gateway.New(gateway.Config{Runners: binaries, Home: home.Dir})
	if err != nil {
		return nil, nil, err
	}
	return g, func() {
		ctx, cancel := context.WithTimeout(context.Background(), endPatience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			log.Warn("close the gateway", "err", err)
		}
	}, nil
}
