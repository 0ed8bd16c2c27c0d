package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// hello tells who the host is. With Create, at enrolment, the state folder and its id are made.
func hello(_ context.Context, s *session, request wire.HelloRequest) (wire.HelloAnswer, error) {
	enrolled := s.request.Host
	if enrolled != (wire.Identity{}) {
		if err := s.host.checkMachine(enrolled); err != nil {
			return wire.HelloAnswer{}, err
		}
	}
	dir, err := s.host.permit.dir(s.request.Request)
	if err != nil {
		return wire.HelloAnswer{}, err
	}
	// A key that may start nothing makes nothing either.
	create := request.Create && s.host.permit.admit(wire.VerbSubmit) == nil
	folder, err := s.host.open(dir, create)
	if err != nil {
		return wire.HelloAnswer{}, err
	}
	if enrolled.StateID != "" {
		if err := checkState(enrolled, folder); err != nil {
			return wire.HelloAnswer{}, err
		}
	}
	sum, err := ownSHA256()
	if err != nil {
		return wire.HelloAnswer{}, err
	}
	login := loginName()
	answer := wire.HelloAnswer{
		Protocol: wire.Protocol, Version: longstop.Version, RunnerSHA256: sum,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernel(),
		MachineID: s.host.machineID, BootID: folder.BootID(), User: login, UID: s.host.uid,
		BootNow: boundary.BootNow(), Now: longstop.At(time.Now()),
		StateDir: folder.Dir(), StateID: folder.StateID(), StateFS: fileSystem(folder.FD()),
		Boundaries: offers(surveyed(false)), Root: os.Geteuid() == 0, Limits: limits(),
		Allowed: s.host.permit.allowed(),
	}
	describeLogin(&answer)
	if s.host.permit.admit(wire.VerbSubmit) == nil {
		if err := folder.Room(); err != nil {
			answer.Notes = append(answer.Notes, "no run can be started: "+told(err).Message)
		}
		if _, err := boundary.Look(1); errors.Is(err, boundary.ErrHidden) {
			answer.Notes = append(answer.Notes, "no run can be started: "+err.Error())
		}
	}
	return answer, nil
}

// describeLogin tells what becomes of a user's processes when the user logs out.
func describeLogin(answer *wire.HelloAnswer) {
	if answer.Root {
		answer.Notes = append(answer.Notes, "the login is root: a workload can read its owner's memory, and so sign its own record")
	}
	if answer.MachineID == "" {
		answer.Notes = append(answer.Notes, "the host has no /etc/machine-id: it is known by user and state folder alone")
	}
	if isNetworkFS(answer.StateFS) {
		answer.Notes = append(answer.Notes, "the state folder is on "+answer.StateFS+": another host may share it; a local one is safer (--state-dir)")
	}
	if answer.StateFS == "btrfs" || answer.StateFS == "zfs" {
		answer.Notes = append(answer.Notes, "the state folder is on "+answer.StateFS+", which keeps no room for what is written anew: with its disk or quota used up, "+
			"how a run ended is told by its owner, and kept once there is room again; another file system is safer (--state-dir)")
	}
	answer.Systemd = isDir("/run/systemd/system")
	if !answer.Systemd {
		return
	}
	s := surveyed(false)
	answer.Linger = s.Linger != nil && *s.Linger
	answer.KillUserProcess = s.KillsAtLogout != nil && *s.KillsAtLogout
	switch {
	case s.KillsAtLogout == nil:
		answer.Notes = append(answer.Notes, "whether logind kills a user's processes at logout (KillUserProcesses) could not be found out: "+strings.Join(s.Unasked, "; "))
	case answer.KillUserProcess && answer.Boundaries[0].Kind == longstop.BoundarySystemd && answer.Boundaries[0].Can:
		answer.Notes = append(answer.Notes, "logind kills at logout what this user's sessions leave (KillUserProcesses=yes); what is in a unit stays: --detached, or --owner systemd")
	case answer.KillUserProcess:
		note := "logind kills this user's processes at logout (KillUserProcesses=yes), setsid or not"
		for _, b := range answer.Boundaries {
			if b.Kind == longstop.BoundarySystemd && b.Remedy != "" {
				note += "; with a unit they would stay: " + b.Remedy
			}
		}
		answer.Notes = append(answer.Notes, note)
	}
	if s.Shutdown != nil {
		answer.Notes = append(answer.Notes, "a shutdown of the host is planned, or has begun")
	}
}

// loginName is the user as the login names it, else as /etc/passwd does, else the number.
func loginName() string {
	for _, name := range []string{"USER", "LOGNAME"} {
		if login := os.Getenv(name); login != "" && !strings.ContainsAny(login, "/\x00\n") {
			return login
		}
	}
	uid := strconv.Itoa(os.Getuid())
	passwd, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(passwd)) {
		if fields := strings.Split(line, ":"); len(fields) > 3 && fields[2] == uid {
			return fields[0]
		}
	}
	return uid
}

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// fileSystems names what statfs(2) numbers.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.NFS_SUPER_MAGIC: "nfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB2_SUPER_MAGIC: "smb2", unix.RAMFS_MAGIC: "ramfs",
	0x7461636f: "ocfs2", 0x01161970: "gfs2", 0x47504653: "gpfs", 0x19830326: "beegfs", unix.AFS_SUPER_MAGIC: "afs",
	unix.CEPH_SUPER_MAGIC: "ceph", 0x0bd00bd0: "lustre", unix.V9FS_MAGIC: "9p", unix.MSDOS_SUPER_MAGIC: "vfat",
}

func fileSystem(fd int) string {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return ""
	}
	if name, ok := fileSystems[int64(st.Type)]; ok {
		return name
	}
	return "0x" + strconv.FormatUint(uint64(uint32(st.Type)), 16)
}

func isNetworkFS(name string) bool {
	switch name {
	case "nfs", "cifs", "smb2", "ceph", "lustre", "9p", "ocfs2", "gfs2", "gpfs", "beegfs", "afs", "fuse": // of fuse nothing else is known
		return true
	}
	return false
}

// limits are the resource limits that a workload inherits: "soft" or "soft/hard", as setrlimit(2).
func limits() map[string]string {
	found := map[string]string{}
	for name, resource := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC,
		"as": unix.RLIMIT_AS, "fsize": unix.RLIMIT_FSIZE, "cpu": unix.RLIMIT_CPU, "core": unix.RLIMIT_CORE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil {
			found[name] = limitWord(limit.Cur) + "/" + limitWord(limit.Max)
		}
	}
	return found
}

func limitWord(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// ownSHA256 is the hash of the running binary, whatever has its name now.
func ownSHA256() (string, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer self.Close()
	h := sha256.New()
	if _, err := io.Copy(h, self); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
