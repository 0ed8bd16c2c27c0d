package api

import (
	"context"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
)

func (f *fake) AuditQueries(context.Context) ([]longstop.AuditQuery, error) { return nil, nil }
func (f *fake) Audit(context.Context, gateway.AuditFilter) (longstop.AuditPage, error) {
	return longstop.AuditPage{}, nil
}
