package gateway

import "time"

// ahead is how far a clock is ahead of ours that told its time in an answer, which was asked for and came at these
// times of ours: as much of it as the answer's journey does not explain.
func ahead(told, asked, came time.Time) time.Duration {
	switch {
	case told.IsZero():
		return 0
	case told.Before(asked):
		return told.Sub(asked)
	case told.After(came):
		return told.Sub(came)
	}
	return 0
}
