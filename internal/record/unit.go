package record

import (
	"encoding/json"

	"github.com/longstop/longstop"
)

// maxUnit bounds what is read of a file that the work could have written.
const maxUnit = 16 << 10

// KeepUnit keeps beside the run's record what a service manager says of the run's unit. Nobody but the
// keeper does; it is not flushed, for nothing rests on it.
func (r *Run) KeepUnit(u longstop.Unit) error {
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return r.replace("unit", data)
}

// Unit is what KeepUnit kept last, nil if nothing.
func (r *Run) Unit() *longstop.Unit {
	if r.dir == nil {
		return nil
	}
	data, err := readAll(r.dir, "unit", maxUnit)
	var u longstop.Unit
	if err != nil || json.Unmarshal(data, &u) != nil || u.Name == "" {
		return nil
	}
	return &u
}
