package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/longstop/longstop/internal/api"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// sweepPatience bounds how long masters of a killed predecessor may take to end when asked.
const sweepPatience = 10 * time.Second

// open chooses the hands of the gateway of a home: the store, both ways to hosts, the runners.
func open(home client.Home, log *slog.Logger, out *logOutput) (api.Gateway, func(), error) {
	binaries, err := runners()
	if err != nil {
		return nil, nil, err
	}
	config, err := readConfig(home)
	if err != nil {
		return nil, nil, err
	}
	out.secrets.Store(config.redact)
	openssh := &sshlink.OpenSSH{Dir: home.Runtime}
	ctx, cancel := context.WithTimeout(context.Background(), sweepPatience)
	defer cancel()
	if err := openssh.Sweep(ctx); err != nil {
		log.Warn("end what a killed predecessor left", "err", err)
	}
	store, err := sqlite.Open(home.Database())
	if err != nil {
		tellNotStarted(home, config.ways, err)
		return nil, nil, fmt.Errorf("open the store: %w", err)
	}
	g, err := gateway.New(gateway.Config{
		Store: store, Runners: binaries, Home: home.Dir, Retention: config.Retention.asGateway(), Ways: config.ways,
		Redact: config.redact, Witnesses: config.Witnesses,
		SessionIdle: time.Duration(config.Sessions.IdleHours * float64(time.Hour)),
		Dialers:     map[string]sshlink.Dialer{"openssh": openssh, "embedded": &sshlink.Embedded{}},
	})
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
