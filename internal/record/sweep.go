package record

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// unclaimedAge is how long what no key leads to is left alone: a spool that no submit took, what a
// submit left that died before its claim.
const unclaimedAge = 24 * time.Hour

// goneName begins the name, in spool, of the folder of a run that is being removed.
const goneName = "gone."

// SweepSpool removes what no submit took within a day, standard input and rooms, and what is left of runs that
// were being removed.
func (f *Folder) SweepSpool(now time.Time) {
	spools, _ := names(f.spool)
	for _, name := range spools {
		switch {
		case strings.HasPrefix(name, goneName):
			removeAll(f.spool, name)
		case unclaimed(f.spool, name, now):
			removeAll(f.spool, name)
		}
	}
}

// unclaimed reports whether a file was left alone for so long that nobody will come for it.
func unclaimed(dir *os.File, name string, now time.Time) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		now.Sub(time.Unix(st.Mtim.Unix())) > unclaimedAge
}

// sweep removes what dead submits left, as far as it is found without looking at all that exists: old
// spools, and runs that are indexed and that no key leads to.
func (f *Folder) sweep(now time.Time) {
	f.SweepSpool(now)
	unresolved, _ := f.Unresolved()
	for _, id := range unresolved {
		f.sweepClaim(string(id), now)
	}
}

// sweepAll removes whatever dead submits left. It looks at every name, so it is for once per boot.
func (f *Folder) sweepAll(claims []string, now time.Time) {
	for _, name := range claims {
		f.sweepClaim(name, now)
	}
	runs, _ := names(f.runs)
	for _, name := range runs {
		f.sweepRun(name, now)
	}
}

// sweepClaim removes an old name in claims that is a run's which no key leads to, or a void's that was
// never made.
func (f *Folder) sweepClaim(name string, now time.Time) {
	id, err := longstop.ParseRunID(name)
	run := err == nil
	if !run && !strings.HasPrefix(name, "void.") || !unclaimed(f.claims, name, now) {
		return
	}
	if run && (exists(f.runs, name+"/final") || f.claimed(id)) {
		return
	}
	unlink(f.unresolved, name)
	unlink(f.claims, name)
	f.sweepRun(name, now)
}

// sweepRun removes an old folder in runs that was built and never claimed.
func (f *Folder) sweepRun(name string, now time.Time) {
	id, err := longstop.ParseRunID(name)
	if err == nil && !exists(f.claims, name) && !exists(f.runs, name+"/final") && unclaimed(f.runs, name, now) && !exists(f.tombs, name) {
		f.removeRun(id)
	}
}

// roomForRuns is about what a few runs need before they have written anything.
const roomForRuns = 512 << 10

// Short reports whether there may be no room for another run.
func (f *Folder) Short() bool { return f.Room() != nil }

// Room is why there may be no room for another run, nil where there is. It tries: what a quota leaves,
// whether a disk has turned read-only or a file system has locks, nothing tells.
func (f *Folder) Room() error {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.spool.Fd()), &fs) == nil {
		blocks := fs.Bavail
		if os.Geteuid() == 0 {
			blocks = fs.Bfree
		}
		// The last of it is not tried for: those who run write there meanwhile.
		if fs.Files > 0 && fs.Ffree < 32 || fs.Blocks > 0 && blocks*uint64(fs.Bsize) < roomForRuns {
			return writeError(f.spool.Name(), unix.ENOSPC)
		}
	}
	name := goneName + randomName() // swept if we die here
	file, err := openAt(f.spool, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return writeError(f.spool.Name(), err)
	}
	defer file.Close()
	defer unlink(f.spool, name)
	if err := lock(file); err != nil {
		return err
	}
	_, err = retry(func() (int, error) { return 0, unix.Fallocate(int(file.Fd()), 0, 0, roomForRuns) })
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return writeError(f.spool.Name(), err)
	}
	return nil
}
