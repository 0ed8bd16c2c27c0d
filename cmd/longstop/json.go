package main

import (
	"context"
	"encoding/json"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// printAction prints the action that an error is about, if there is one.
func (a *app) printAction(ctx context.Context, c *client.Client, err error) bool {
	action := actionOf(ctx, c, err)
	if action != nil {
		a.printJSON(action)
	}
	return action != nil
}

// actionOf is the action that an error is about, nil if there is none that can be asked for.
func actionOf(ctx context.Context, c *client.Client, err error) *longstop.Action {
	id := asError(err).ActionID
	if id == "" {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	action, err := c.Action(asking, string(id))
	if err != nil {
		return nil
	}
	return &action
}

// printJSON prints a value as JSON: on one line, or laid out on a terminal.
func (a *app) printJSON(v any) {
	text, err := json.Marshal(v)
	if isTerminal(a.out) {
		text, err = json.MarshalIndent(v, "", "  ")
	}
	if err != nil {
		text, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	a.out.Write(append(text, '\n'))
}

// orEmpty keeps an empty list from being null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// printOneOrAll prints one value as an object, several as an array.
func printOneOrAll[T any](a *app, list []T) {
	if len(list) == 1 {
		a.printJSON(list[0])
	} else {
		a.printJSON(list)
	}
}
