package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/longstop/longstop"
)

// CanonicalDigest is "sha256:" and the hash of everything that decides what a request does and
// where: one key has one digest, and an approval binds one. Every field goes in as its name, a
// length and its bytes, so that no two requests share an encoding. Reason and Digest stay out: they
// change nothing about the work. Arguments count as bytes, in whichever of their two fields they
// travel. host and hostKey are the resolved address and the fingerprint of its key.
func CanonicalDigest(host, hostKey string, req longstop.Request, env map[string][]byte) string {
	d := digester{sha256.New()}
	d.text("longstop request", "1")
	d.text("host", host)
	d.text("host_key", hostKey)

	argv := req.ArgvB64
	if argv == nil {
		for _, arg := range req.Argv {
			argv = append(argv, []byte(arg))
		}
	}
	d.list("argv", argv)
	d.text("script", req.Script)
	d.flag("strict_shell", req.StrictShell)
	d.text("cwd", req.Cwd)
	d.environment(req.Env, env)
	d.number("stdin_bytes", uint64(req.StdinBytes))
	d.text("stdin_sha256", req.StdinSHA256)
	d.text("lifetime", string(req.Lifetime))
	d.text("owner", string(req.Owner))
	d.text("boundary_min", string(req.BoundaryMin))
	d.text("leftover", string(req.Leftover))
	d.text("effect", string(req.Effect))
	d.flag("pty", req.PTY)
	d.flag("own_channel", req.OwnChannel)
	if req.OutputMax != nil {
		d.number("output_max", uint64(*req.OutputMax))
	}
	var limits longstop.Limits
	if req.Limits != nil {
		limits = *req.Limits
	}
	d.number("open_files", uint64(limits.OpenFiles))
	d.number("processes", uint64(limits.Processes))
	d.number("cpu_s", uint64(limits.CPUS))
	d.number("file_bytes", uint64(limits.FileBytes))
	if limits.OfRun() != nil {
		d.number("memory_bytes", uint64(limits.MemoryBytes))
		d.number("cpu_percent", uint64(limits.CPUPercent))
		d.number("tasks", uint64(limits.Tasks))
	}
	d.number("lease_s", math.Float64bits(req.LeaseS))
	d.number("deadline_s", math.Float64bits(req.DeadlineS))
	d.number("grace_s", math.Float64bits(req.GraceS))
	if req.Preflight != "" || req.Verify != "" || req.CheckS != 0 {
		d.text("preflight", req.Preflight)
		d.text("verify", req.Verify)
		d.number("check_s", math.Float64bits(req.CheckS))
	}
	if req.Exclusive != "" || req.ExclusiveWaitS != 0 {
		d.text("exclusive", req.Exclusive)
		d.number("exclusive_wait_s", math.Float64bits(req.ExclusiveWaitS))
	}
	return "sha256:" + hex.EncodeToString(d.Sum(nil))
}

type digester struct{ hash.Hash }

func (d digester) length(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.Write(b[:])
}

func (d digester) bytes(b []byte) {
	d.length(len(b))
	d.Write(b)
}

func (d digester) text(name, value string) {
	d.bytes([]byte(name))
	d.bytes([]byte(value))
}

func (d digester) number(name string, value uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], value)
	d.bytes([]byte(name))
	d.bytes(b[:])
}

func (d digester) flag(name string, value bool) {
	var n uint64
	if value {
		n = 1
	}
	d.number(name, n)
}

func (d digester) list(name string, values [][]byte) {
	d.bytes([]byte(name))
	d.length(len(values))
	for _, v := range values {
		d.bytes(v)
	}
}

// environment takes the sorted names with their values. A name without a value (a request read
// back from the journal) is not the same as one with an empty value.
func (d digester) environment(names []string, values map[string][]byte) {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	for name := range values {
		all[name] = true
	}
	d.bytes([]byte("env"))
	d.length(len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, known := values[name]
		d.bytes([]byte(name))
		d.flag("known", known)
		d.bytes(value)
	}
}
