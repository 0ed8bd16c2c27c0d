package runner

// Window is a step of a run's life on a host at which a process can die: a fault point, and who
// passes it. Between any two of them nothing is done that a test could not see.
type Window struct {
	Point string
	Who   string // "keeper", "owner", "gate"
	When  string // what has just been done
}

// UnitStarted is one more, of a run in a unit: it lies between those of the claim and of the assignment.
var UnitStarted = Window{"submit.unit.started", "keeper", "a service manager has started an owner"}

// Windows are the fault points of launching and stopping a run, in the order in which they are
// passed. Record's own are among them.
var Windows = []Window{
	{"keeper.listening", "keeper", "the keeper has its lock and its socket"},
	{"record.build.filled", "keeper", "the run's folder is there but for its record file"},
	{"submit.built", "keeper", "the folder is complete; nothing leads to it"},
	{"record.claim.named", "keeper", "the record file has its run's name"},
	{"record.claim.indexed", "keeper", "the run is in the index of unresolved ones"},
	{"record.claim.linked", "keeper", "the key has the run"},
	{"submit.claimed", "keeper", "the run has its key"},
	{"submit.assigned", "keeper", "an owner has it"},
	{"owner.assigned", "owner", "the same, as the owner sees it"},
	{"owner.locked", "owner", "the owner has the run's lock"},
	{"record.write.starting", "owner", "it found nothing begun"},
	{"owner.starting", "owner", "starting is written"},
	{"owner.gate.started", "owner", "the gate is born"},
	{"gate.planned", "gate", "the same, as the gate sees it"},
	{"gate.ready", "gate", "the gate is in place"},
	{"owner.gate.ready", "owner", "the gate said so"},
	{"record.write.running", "owner", "the gate was verified"},
	{"record.write.running.flush", "owner", "running is written, not durable"},
	{"owner.running", "owner", "running is durable; the gate is shut"},
	{"owner.opened", "owner", "the byte is sent"},
	{"gate.byte", "gate", "the byte is there"},
	{"gate.opened", "gate", "the gate said so; exec is next"},
	{"owner.answered", "owner", "the keeper has the owner's answer"},
	{"submit.answered", "keeper", "the same, as the keeper sees it"},
	{"owner.main.ended", "owner", "the main process is a zombie; its status is on record"},
	{"owner.lingering", "owner", "lingering is durable"},
	{"owner.finish", "owner", "nothing is left of the run"},
	{"record.finish.start", "owner", "the final record is made"},
	{"record.finish.written", "owner", "it is durable in its reserved room"},
	{"record.finish.renamed", "owner", "it has its name"},
	{"owner.finished", "owner", "all is done but to go"},
}

// StopWindows are those of stopping a run, from the asking on.
var StopWindows = []Window{
	{"cancel.recorded", "owner", "the intent is durable; nobody was signalled"},
	{"cancel.terming", "owner", "it is written that TERM is about to be sent"},
	{"cancel.signalled", "owner", "TERM and CONT were sent"},
	{"cancel.termed", "owner", "that is written"},
	{"cancel.kill", "owner", "the grace is over"},
	{"record.write.cancelling", "owner", "cancelling is about to be written"},
	{"owner.finish", "owner", "nothing is left of the run"},
	{"record.finish.renamed", "owner", "the final record has its name"},
	{"keeper.inherit", "keeper", "an owner was found dead"},
	{"successor.locked", "keeper", "a successor has the run's lock"},
}
