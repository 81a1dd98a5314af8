// kstatus prints what kubectl-style tools (Flux, kpt, Helm's --wait) make of the objects on standard input.
//
// Input is JSON, one object after the other; output is a line an object: kind, name, kstatus' status, its message.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := compute(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func compute(from io.Reader, to io.Writer) error {
	objects := json.NewDecoder(from)
	for {
		var text json.RawMessage
		if err := objects.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// By this and not by encoding/json, which would make numbers of another type of it than kstatus reads.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		found, err := status.Compute(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "%s\t%s\t%s\t%s\n", object.GetKind(), object.GetName(), found.Status, found.Message)
	}
}
