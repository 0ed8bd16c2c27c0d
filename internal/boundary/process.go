package boundary

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/longstop/longstop"
)

// RunMark is the name of the environment variable that every process of a run inherits, unless it
// clears its environment.
const RunMark = "LONGSTOP_RUN_ID"

// maxCommand bounds what is kept of a process's arguments.
const maxCommand = 512

// Describe adds to a process what a person would know it by.
func Describe(s Stat) longstop.Process {
	p := longstop.Process{
		PID: s.PID, PPID: s.PPID, PGID: s.PGID, SID: s.SID, State: string(s.State), StartTime: s.Start,
		UID: owner(s.PID), Command: command(s), ElapsedMS: elapsed(s),
	}
	for fd := range p.Files {
		p.Files[fd], _ = os.Readlink("/proc/" + strconv.Itoa(s.PID) + "/fd/" + strconv.Itoa(fd))
	}
	return p
}

func elapsed(s Stat) int64 {
	return max(0, int64(Ticks(BootNow())-s.Start)) * (1000 / ticksPerSecond)
}

// owner is the effective user of a process, by whom kill(2) judges, or -1.
func owner(pid int) int {
	data, err := readWhole("/proc/"+strconv.Itoa(pid)+"/status", 16<<10)
	if err != nil {
		return -1
	}
	_, rest, ok := bytes.Cut(data, []byte("\nUid:"))
	fields := strings.Fields(string(rest[:min(len(rest), 64)]))
	if !ok || len(fields) < 2 {
		return -1
	}
	uid, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return uid
}

func command(s Stat) string {
	data, err := readWhole("/proc/"+strconv.Itoa(s.PID)+"/cmdline", maxCommand)
	if err != nil || len(data) == 0 {
		return "[" + s.Name + "]"
	}
	data = bytes.TrimRight(data, "\x00")
	words := strings.ToValidUTF8(string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})), string(utf8.RuneError))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, words)
}

// Marked returns the living processes of this user that carry a run's mark and did not start before
// it: those that can be known for the run's when nobody is left who would know them by descent. A
// process that cleared its environment, or whose environment this user may not read, is not found.
func Marked(run longstop.RunID, since uint64) []Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	mark := []byte(RunMark + "=" + string(run))
	var found []Stat
	for _, name := range names {
		pid, ok := number(name)
		if !ok || pid <= 1 || pid == os.Getpid() || !carries(pid, mark) {
			continue
		}
		s, err := Look(pid)
		if err == nil && !s.Dead() && s.Start >= since && owner(pid) == os.Geteuid() {
			found = append(found, s)
		}
	}
	return found
}

// Mark returns the run that a process's environment names, or "" where it names none or cannot be
// read.
func Mark(pid int) longstop.RunID {
	data, err := readWhole("/proc/"+strconv.Itoa(pid)+"/environ", 8<<20)
	if err != nil {
		return ""
	}
	for _, entry := range bytes.Split(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(RunMark+"=")); ok {
			run, err := longstop.ParseRunID(string(value))
			if err != nil {
				return ""
			}
			return run
		}
	}
	return ""
}

func carries(pid int, mark []byte) bool {
	data, err := readWhole("/proc/"+strconv.Itoa(pid)+"/environ", 8<<20)
	if err != nil {
		return false
	}
	for rest := data; ; {
		at := bytes.Index(rest, mark)
		if at < 0 {
			return false
		}
		end := at + len(mark)
		if (at == 0 || rest[at-1] == 0) && (end == len(rest) || rest[end] == 0) {
			return true
		}
		rest = rest[end:]
	}
}

func number(name string) (int, bool) {
	if name == "" || name[0] < '0' || name[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}
