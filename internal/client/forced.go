package client

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/longstop/longstop"
)

// ForcedSetup asks what an operator has to do on a host for a forced enrolment.
func (c *Client) ForcedSetup(ctx context.Context, e longstop.EnrolRequest) (setup longstop.ForcedSetup, err error) {
	err = c.call(ctx, "POST", v1+"/forced", nil, e, &setup)
	return setup, err
}

// maxRunner bounds what is taken for a runner's binary.
const maxRunner = 64 << 20

// Runner returns the binary of the runner for an architecture.
func (c *Client) Runner(ctx context.Context, arch string) ([]byte, error) {
	r, err := c.do(ctx, request{method: "GET", path: v1 + "/runners/" + url.PathEscape(arch)})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	binary, err := io.ReadAll(io.LimitReader(r.body, maxRunner+1))
	if err == nil && len(binary) > maxRunner {
		err = fmt.Errorf("a runner of more than %d MB", maxRunner>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read the runner: %w", err)
	}
	return binary, nil
}
