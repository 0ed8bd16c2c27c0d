package main

import (
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/longstop/longstop/internal/client"
)

// lookAtPlace is how often a daemon looks whether its home is still where it was.
const lookAtPlace = time.Second

// place is where a daemon can be found: its home's lock, and the socket in it. Both are names that
// somebody may remove (a cleaner of temporary folders, a person) while the process that they stand
// for goes on.
type place struct {
	home   client.Home
	lock   *lock
	socket os.FileInfo // as we made it
}

// keep makes the socket anew where its name is gone, and gives it to serve. It returns once the home
// itself is gone, or is another's: a daemon whose lock keeps nobody out must end, for the next one
// believes to be the only one.
func (p *place) keep(serve func(net.Listener), log *slog.Logger) {
	for range time.Tick(lookAtPlace) {
		if !inPlace(p.lock.held, p.home.Lock()) {
			return
		}
		if there, err := os.Lstat(p.home.Socket()); err == nil && os.SameFile(there, p.socket) {
			continue
		}
		l, err := p.listen()
		if err != nil {
			log.Warn("the socket is gone and cannot be made again", "err", err)
			continue
		}
		log.Warn("the socket was removed: made again", "socket", p.home.Socket())
		serve(l)
	}
}

// listen makes the socket, for this user alone, and notes which one it is.
func (p *place) listen() (net.Listener, error) {
	l, err := listen(p.home)
	if err != nil {
		return nil, err
	}
	if p.socket, err = os.Lstat(p.home.Socket()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
