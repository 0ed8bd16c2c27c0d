package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// A keeper's names in the state folder are its binary's. After an upgrade the runs that go on keep the
// keeper and owners that they were started with, and new ones have the new binary's, which no process of
// the old one is asked to understand. Keepers of one folder know of each other by their locks, and leave
// each other's runs alone.

const keeperPrefix, lockSuffix, socketSuffix = "keeper.", ".lock", ".sock"

// keeperName is common to the names of this binary's keeper.
var keeperName = sync.OnceValue(func() string {
	var st unix.Stat_t
	unix.Stat("/proc/self/exe", &st)
	sum := sha256.Sum256(fmt.Append(nil, longstop.Version, st.Dev, st.Ino, st.Size, st.Mtim))
	return keeperPrefix + hex.EncodeToString(sum[:6])
})

func keeperLock() string   { return keeperName() + lockSuffix }
func keeperSocket() string { return keeperName() + socketSuffix }

// otherKeepers are the sockets of the keepers of other binaries that live.
func otherKeepers(f *record.Folder) (sockets []string) {
	dir, err := os.Open(f.Dir())
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		base, is := strings.CutSuffix(name, lockSuffix)
		if !is || !strings.HasPrefix(name, keeperPrefix) || base == keeperName() {
			continue
		}
		if lives, err := f.Locked(name); err == nil && lives {
			sockets = append(sockets, base+socketSuffix)
		}
	}
	return sockets
}

// askKeepers asks the keeper that has a run, of whatever binary; else this binary's.
func askKeepers(ctx context.Context, f *record.Folder, a ask) (reply, error) {
	for _, name := range otherKeepers(f) {
		theirs := a
		theirs.Yours = true
		if r, err := askOther(ctx, f, name, theirs); err != nil || r.Record != nil || r.Refused != "" {
			return r, err
		}
	}
	return askKeeper(ctx, f, a)
}

// askOther asks a keeper of another binary. One that goes, or does not hear, has nothing to say.
func askOther(ctx context.Context, f *record.Folder, name string, a ask) (reply, error) {
	l, err := dial(f.FD(), name)
	if err != nil {
		return reply{}, nil
	}
	defer l.close()
	if keeper, known := behind(l); known {
		wake(keeper.Identity)
	}
	r, err := exchange(ctx, l, a, 2*heardWithin)
	if lostWord(err) || errors.Is(err, os.ErrDeadlineExceeded) {
		return reply{}, nil
	}
	return r, err
}

// has reports whether this keeper answers for a run or is the parent of its owner.
func (k *keeper) has(id longstop.RunID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wards[id] != nil || k.custody[id] != nil
}

// theirs reports whether a run that nobody answers for just now is left, for a while, to the keepers of other
// binaries: one of them may be the parent of its dead owner, and be told how the work ended.
func (k *keeper) theirs(id longstop.RunID) bool {
	if len(otherKeepers(k.folder)) == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	since, known := k.silent[id]
	if !known {
		since = time.Now()
		if k.silent == nil {
			k.silent = map[longstop.RunID]time.Time{}
		}
		k.silent[id] = since
	}
	return time.Since(since) < heardWithin
}

// keepers are the processes of all the folder's keepers, this binary's first.
func keepers(f *record.Folder) (all []boundary.Stat) {
	for _, name := range append([]string{keeperSocket()}, otherKeepers(f)...) {
		if keeper, known := listensAt(f.FD(), name); known {
			all = append(all, keeper)
		}
	}
	return all
}
