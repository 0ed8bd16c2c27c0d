package runner

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

func itoa(n int) string { return strconv.Itoa(n) }

// host is this machine and user, what whoever asks may do, and the state folders that requests have named.
type host struct {
	permit    permit
	machineID string
	uid       int

	mu      sync.Mutex
	folders map[string]*record.Folder
}

func newHost(permit permit) *host {
	return &host{permit: permit, machineID: boundary.MachineID(), uid: os.Getuid(), folders: map[string]*record.Folder{}}
}

// folder opens the state folder of a request, after the machine, the user and the folder were seen
// to be the enrolled ones.
func (h *host) folder(request wire.Request) (*record.Folder, error) {
	if err := h.checkMachine(request.Host); err != nil {
		return nil, err
	}
	dir, err := h.permit.dir(request)
	if err != nil {
		return nil, err
	}
	folder, err := h.open(dir, false)
	if err != nil {
		return nil, err
	}
	return folder, checkState(request.Host, folder)
}

// open opens a state folder, or returns the one that is open already if it is still at its path.
func (h *host) open(dir string, create bool) (*record.Folder, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if folder := h.folders[dir]; folder != nil && folder.Check() == nil {
		return folder, nil
	}
	// One that went away is not closed: other requests may be at work in it.
	delete(h.folders, dir)
	open := record.Open
	if create {
		open = record.Create
	}
	folder, err := open(dir)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil, &longstop.Error{Code: longstop.CodeHostMismatch, Message: "there is no state folder of Longstop's at " + dir,
			Hint: "If the host was reinstalled or the folder removed, enrol it again: longstop host remove, longstop host add."}
	}
	if err != nil {
		return nil, err
	}
	h.folders[dir] = folder
	return folder, nil
}

// checkMachine compares machine and user with the enrolled ones.
func (h *host) checkMachine(enrolled wire.Identity) error {
	if enrolled.MachineID != h.machineID {
		return mismatch("machine " + quoted(h.machineID) + ", not " + quoted(enrolled.MachineID))
	}
	if enrolled.UID != h.uid {
		return mismatch("user " + itoa(h.uid) + ", not " + itoa(enrolled.UID))
	}
	return nil
}

func checkState(enrolled wire.Identity, folder *record.Folder) error {
	if enrolled.StateID != folder.StateID() {
		return mismatch("the state folder " + folder.StateID() + " at " + folder.Dir() + ", not " + quoted(enrolled.StateID))
	}
	return nil
}

func mismatch(what string) error {
	return &longstop.Error{Code: longstop.CodeHostMismatch, Message: "this is " + what + " as enrolled: nothing was done",
		Hint: "Check where the host's name leads. If it was reinstalled: longstop host remove, longstop host add."}
}
