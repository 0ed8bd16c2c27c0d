// Package fault marks the steps at which a process of Longstop can be made to die, stop or dawdle
// in tests. Without the build tag "faults" its functions are empty and vanish: no release binary
// can be told to fail.
//
// With the tag, the environment says what happens where:
//
//	LONGSTOP_FAULT="point[:n]=kill|stop|delay:ms|eio[,…]"  at the n-th pass (default the first) of a point;
//	                                                    eio is for flushes, which then fail
//	LONGSTOP_FLUSH_DELAY_MS=2                           before every flush
//	LONGSTOP_FLUSH_LOG=/path                            a line "pid point" for every flush
//	LONGSTOP_FAULT_FILES=/folder                        has plain files in place of some of the kernel's
//
// A point is named by the package that passes it, as "record.finish.renamed".
package fault
