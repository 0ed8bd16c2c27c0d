package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/longstop/longstop"
)

// FolderRunners finds runner binaries as files: longstop-runner-linux-GOARCH, or, for this
// machine's own architecture, longstop-runner. FS is the folder beside the executable
// (RunnersBeside), or one embedded in it.
type FolderRunners struct {
	FS    fs.FS
	Where string // of FS, for messages

	mu    sync.Mutex
	found map[string]runnerBinary
}

type runnerBinary struct {
	bytes  []byte
	sha256 string
}

// RunnersBeside looks in the folder of the running executable.
func RunnersBeside() (*FolderRunners, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the folder of this program: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	return &FolderRunners{FS: os.DirFS(dir), Where: dir}, nil
}

// Runner reads the binary for goarch, once.
func (f *FolderRunners) Runner(goarch string) ([]byte, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.found[goarch]; ok {
		return r.bytes, r.sha256, nil
	}
	names := []string{"longstop-runner-linux-" + goarch}
	if runtime.GOOS == "linux" && goarch == runtime.GOARCH {
		names = append(names, "longstop-runner")
	}
	for _, name := range names {
		b, err := fs.ReadFile(f.FS, name)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(b)
		if f.found == nil {
			f.found = map[string]runnerBinary{}
		}
		f.found[goarch] = runnerBinary{b, hex.EncodeToString(sum[:])}
		return b, f.found[goarch].sha256, nil
	}
	return nil, "", &longstop.Error{
		Code:    longstop.CodeUnsupported,
		Message: fmt.Sprintf("no runner for linux/%s: %s is not in %s", goarch, names[0], f.Where),
		Hint:    "make build",
	}
}
