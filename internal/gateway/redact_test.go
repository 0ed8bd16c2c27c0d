package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop/internal/wire"
)

// Whatever a shell makes of a request that it was given instead of a runner, and wherever that is cut
// off, no secret is left in it.
func TestRedact(t *testing.T) {
	t.Parallel()
	submit := wire.Submit{RunID: "run_1", Secret: []byte(strings.Repeat("\x00\xfe!", 11)[:32]), EnvValues: map[string][]byte{"TOKEN": []byte("correct horse"), "EMPTY": nil}}
	request, err := json.Marshal(submit)
	if err != nil {
		t.Fatal(err)
	}
	words := secretsOf(submit)
	if got := withoutWords([]byte("plain"), secretsOf(wire.CancelRequest{})); string(got) != "plain" {
		t.Errorf("%q", got)
	}
	for name, printed := range map[string]string{
		"repeated":     "hm\n" + string(request) + "\n",
		"not a word":   fmt.Sprintf("sh: 1: %s: not found\n", strings.NewReplacer(`"`, "", "{", "", "}", "").Replace(string(request))),
		"word by word": strings.Join(strings.FieldsFunc(string(request), func(r rune) bool { return strings.ContainsRune("{},:", r) }), "\n"),
	} {
		for n := range len(printed) + 1 {
			kept := string(withoutWords([]byte(printed[:n]), words))
			for _, secret := range [][]byte{submit.Secret, submit.EnvValues["TOKEN"]} {
				encoded := base64.StdEncoding.EncodeToString(secret)
				if strings.Contains(kept, encoded[:leastTail]) {
					t.Fatalf("%s, cut at %d: %q", name, n, kept)
				}
			}
		}
		if whole := string(withoutWords([]byte(printed), words)); !strings.Contains(whole, "run_1") || strings.Count(whole, redacted) != 2 {
			t.Errorf("%s: %q", name, whole)
		}
	}
}
