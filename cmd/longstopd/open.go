package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/longstop/longstop/internal/api"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// open chooses the hands of the gateway of a home.
func open(home client.Home, log *slog.Logger) (api.Gateway, func(), error) {
	binaries, err := runners()
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlite.Open(home.Database())
	if err != nil {
		return nil, nil, fmt.Errorf("open the store: %w", err)
	}
	g, err := gateway.New(gateway.Config{Store: store, Runners: binaries, Home: home.Dir,
		Dialers: map[string]sshlink.Dialer{
			"openssh":  &sshlink.OpenSSH{Dir: home.Runtime},
			"embedded": &sshlink.Embedded{},
		}})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return g, func() {
		ctx, cancel := context.WithTimeout(context.Background(), endPatience)
		defer cancel()
		if err := errors.Join(g.Close(ctx), store.Close()); err != nil {
			log.Warn("close the gateway", "err", err)
		}
	}, nil
}
