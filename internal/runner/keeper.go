package runner

import (
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/systemd"
)

// keeper is the process above a user's owners in one state folder. It starts them and is there to
// inherit: when an owner dies, the kernel hands its children to the keeper, which reaps their true
// statuses, moves their output on, and answers for the run (inherit.go). A keeper that finds runs
// whose owner and keeper are both gone is their successor (successor.go). It holds its lock, and
// goes when there is no run and nobody connected.
type keeper struct {
	folder *record.Folder
	reaper *boundary.Reaper
	socket *listener
	clock  *alarm         // for guard
	home   string         // where runs' cgroups are made; empty: nowhere
	ended  chan os.Signal // SIGCHLD

	mu       sync.Mutex
	flights  map[string]*flight          // submits in hand, by key hash
	standbys map[boundary.Identity]*ward // owners without a run
	spare    *ward                       // the one of them that nobody waits for
	wards    map[longstop.RunID]*ward    // runs whose owner is, or was, our child
	freed    []*ward                     // runs that ended, of which children of ours are left
	adopted  map[int]*child              // inherited children, by their numbers, which are theirs until they are reaped
	cameIn   int                         // how many there have been
	sweeps   sweeps
	strays   []boundary.Exit                    // the last that ended and were nobody's yet
	custody  map[longstop.RunID]*custody        // runs that we answer for
	comings  map[longstop.RunID]*coming         // runs whose owner a service manager is starting
	follows  map[longstop.RunID]chan struct{}   // runs whose unit is watched; closed when that is over
	vigils   map[longstop.RunID]bool            // runs that another's owner answers for, or nobody yet
	seen     map[longstop.RunID][]boundary.Stat // the tree of an owner that we ended though it was no child of ours
	silent   map[longstop.RunID]time.Time       // runs that nobody answers for, and since when, while keepers of other binaries live
	visitors int                                // open connections
	holds    int                                // those of them that ask for nothing but that a keeper be there
	leaving  bool                               // TERM came: go as soon as may be
	ending   bool                               // and the host is going down
	stirred  chan struct{}                      // one of these changed

	managers struct {
		sync.Mutex
		of map[systemd.Kind]*systemd.Manager
	}
}

const (
	keeperReady = 3 // descriptor: a byte once the socket is there, its end if another keeper is
	keeperStays = "stay"
	// lingering is how long a keeper waits for somebody new before it goes.
	keeperLingers = 2 * time.Second
)

// RunKeeper is a keeper's main function. Called with a state folder it starts the keeper proper, in
// a session of its own, and goes, so that the keeper is nobody's child.
func RunKeeper(args []string) int {
	if len(args) == 1 {
		return detachKeeper(args[0])
	}
	if len(args) < 2 || len(args) > 3 || args[0] != keeperStays {
		return exitNoAnswer
	}
	home := ""
	if len(args) == 3 {
		home = args[2]
	}
	if err := becomeServant("longstop-keeper", keeperReady); err != nil {
		return exitNoAnswer
	}
	folder, err := record.Open(args[1])
	if err != nil {
		return exitNoAnswer
	}
	lock, err := folder.Lock(keeperLock())
	if err != nil {
		return exitNoAnswer // another keeper is there, or on its way out: whoever asked tries again
	}
	defer lock.Unlock()
	loginOpenFiles() // while nobody else waits for children
	k := &keeper{folder: folder, reaper: &boundary.Reaper{}, home: home, flights: map[string]*flight{}, standbys: map[boundary.Identity]*ward{}, wards: map[longstop.RunID]*ward{},
		adopted: map[int]*child{}, custody: map[longstop.RunID]*custody{}, vigils: map[longstop.RunID]bool{},
		comings: map[longstop.RunID]*coming{}, follows: map[longstop.RunID]chan struct{}{},
		seen: map[longstop.RunID][]boundary.Stat{}, stirred: make(chan struct{}, 1), ended: make(chan os.Signal, 1)}
	k.managers.of = map[systemd.Kind]*systemd.Manager{}
	signals := make(chan os.Signal, 4)
	signal.Notify(k.ended, unix.SIGCHLD)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	if k.socket, err = listen(folder.FD(), keeperSocket()); err != nil {
		return exitNoAnswer
	}
	unix.Write(keeperReady, []byte{1})
	unix.Close(keeperReady)
	fault.At("keeper.listening")
	if k.clock, err = newAlarm(); err != nil {
		return exitNoAnswer
	}
	go k.receive(k.socket)
	go k.watch(signals)
	go k.guard()
	k.succeed()
	folder.SweepSpool(time.Now())
	k.sweepHome()
	k.stay()
	return exitAnswered
}

// stay returns when there is nothing to stay for.
func (k *keeper) stay() {
	for {
		k.restUntilFree()
		pause := keeperLingers
		if k.isLeaving() {
			pause = 0
		}
		select {
		case <-k.stirred:
			continue
		case <-time.After(pause):
		}
		if k.leave() {
			return
		}
	}
}

// restUntilFree returns when nothing needs the keeper. While something does and nothing happens, it
// takes up little: the memory of what has passed is given back, and what its spare's end took.
func (k *keeper) restUntilFree() {
	for k.needed() {
		for pause := keeperLingers; ; pause = spareFor {
			select {
			case <-k.stirred:
			case <-time.After(pause):
				if pause == keeperLingers {
					debug.FreeOSMemory()
				}
				boundary.Forget()
				continue
			}
			break
		}
	}
}

func (k *keeper) needed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	visitors := k.visitors
	if k.leaving {
		visitors -= k.holds
	}
	if visitors+len(k.flights)+len(k.wards)+len(k.custody) > 0 {
		return true
	}
	for id := range k.vigils {
		if k.follows[id] == nil {
			return true
		}
	}
	// Units outlive a login that ends, and are not waited for then; their ends are read where all ends.
	return len(k.follows) > 0 && (!k.leaving || k.ending)
}

func (k *keeper) isLeaving() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaving
}

// leave takes the socket away, so that nobody new finds it, and looks whether somebody just had.
// Whoever is left in its queue all the same sees the connection end without a word, and tries again.
func (k *keeper) leave() bool {
	k.socket.remove()
	var late []*link
	for l := k.socket.waiting(); l != nil; l = k.socket.waiting() {
		late = append(late, l)
	}
	if len(late) == 0 && !k.needed() {
		return true
	}
	socket, err := listen(k.folder.FD(), keeperSocket())
	if err == nil {
		k.socket.file.Close()
		k.socket = socket
		go k.receive(socket)
	}
	for _, l := range late {
		k.welcome(l)
	}
	return false
}

// stir lets stay look again.
func (k *keeper) stir() {
	select {
	case k.stirred <- struct{}{}:
	default:
	}
}

// receive takes connections until the socket is closed.
func (k *keeper) receive(socket *listener) {
	for {
		l, err := socket.accept()
		switch {
		case err == nil:
			k.welcome(l)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			time.Sleep(10 * time.Millisecond) // until some are closed
		default:
			return
		}
	}
}

// welcome answers one connection.
func (k *keeper) welcome(l *link) {
	k.mu.Lock()
	k.visitors++
	k.mu.Unlock()
	k.stir()
	go func() {
		defer func() {
			l.close()
			k.mu.Lock()
			k.visitors--
			k.mu.Unlock()
			k.stir()
		}()
		l.file.SetReadDeadline(time.Now().Add(heardWithin))
		var a ask
		if err := l.receive(&a); err != nil {
			return
		}
		l.file.SetReadDeadline(time.Time{})
		k.answer(l, a)
	}()
}

// hold counts those who want a keeper to be there, whichever: one that is to go does not stay for them.
func (k *keeper) hold(n int) {
	k.mu.Lock()
	k.holds += n
	k.mu.Unlock()
	k.stir()
}

func (k *keeper) answer(l *link, a ask) {
	switch {
	case a.Verb == askSubmit && a.Submit != nil && a.Login != nil:
		if k.home == "" && a.Manager == "" {
			a.Manager = a.Instead
		}
		l.send(k.submit(*a.Submit, *a.Login, a.Manager))
	case a.Verb == askOwn:
		k.arrive(l, a.RunID)
	case a.Verb == askHold:
		l.send(reply{Heard: true})
		k.hold(1)
		<-l.closed()
		k.hold(-1)
	case a.Verb == askHeal:
		k.succeed()
		l.send(reply{})
	case a.Yours && !k.has(a.RunID):
		l.send(reply{})
	case a.Verb == askCancel && a.Cancel != nil, a.Verb == askRenew:
		c, err := k.answering(a)
		switch {
		case err != nil:
			l.send(reply{Error: told(err)})
		case c == nil:
			l.send(reply{}) // nobody need answer any more: its record says why
		default:
			c.answer(l, a)
		}
	default:
		l.send(reply{Error: &longstop.Error{Code: longstop.CodeUsage, Message: "a keeper knows no verb " + quoted(string(a.Verb))}})
	}
}

// watch takes note of children that end, and of signals. TERM does not end a keeper that has runs:
// their owners heard it too, and their records come first.
func (k *keeper) watch(signals <-chan os.Signal) {
	for {
		select {
		case <-k.ended:
			k.reap()
		case <-signals:
			go k.goDown()
		}
	}
}

// goDown has the keeper go as soon as may be, and ends the runs that it answers for itself, if the system
// is going down.
func (k *keeper) goDown() {
	down := goingDown(longstop.Boundary{})
	k.mu.Lock()
	k.leaving, k.ending = true, k.ending || down
	k.mu.Unlock()
	k.stir()
	if !down {
		return
	}
	k.mu.Lock()
	var all []*custody
	for _, c := range k.custody {
		all = append(all, c)
	}
	k.mu.Unlock()
	for _, c := range all {
		c.do(func() { c.ask(longstop.CauseShutdown, c.grace()) })
	}
}
