// Reads a log as the files of C2SP tlog-tiles with golang.org/x/mod/sumdb, and prints what it finds.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type input struct {
	VerifierKey string
	SignerKey   string
	// Where the log is served; the files of the directory if empty.
	URL     string
	Token   string
	Indexes []int64
	// Proofs of ours, in base64, by the place of the index.
	Inclusion   [][]string
	OldSizes    []int64
	OldRoots    []string
	Consistency [][]string
}

type output struct {
	Origin      string
	Size        int64
	Inclusion   [][]string
	Consistency [][]string
	Entries     int
	SignerNote  string
}

type files struct {
	directory string
	in        input
}

// read reads a file of the log by its path under the log's prefix.
func (f files) read(path string) ([]byte, error) {
	if f.in.URL == "" {
		return os.ReadFile(filepath.Join(f.directory, path))
	}
	request, err := http.NewRequest("GET", f.in.URL+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+f.in.Token)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != 200 {
		err = fmt.Errorf("%s: %s: %s", path, reply.Status, data)
	}
	return data, err
}

func (f files) Height() int { return 8 }

func (f files) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		// Go's paths name the height, which is always 8 in tlog-tiles.
		path := "tile/" + strings.TrimPrefix(tile.Path(), "tile/8/")
		data, err := f.read(path)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func (f files) SaveTiles([]tlog.Tile, [][]byte) {}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(directory string) error {
	var in input
	spec, err := os.ReadFile(filepath.Join(directory, "input.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(spec, &in); err != nil {
		return err
	}
	served := files{directory, in}
	origin, tree, err := openCheckpoint(served)
	if err != nil {
		return err
	}
	reader := tlog.TileHashReader(tree, served)
	root, err := tlog.TreeHash(tree.N, reader)
	if err != nil {
		return err
	}
	if root != tree.Hash {
		return fmt.Errorf("the tiles have the root %v, and the checkpoint %v", root, tree.Hash)
	}
	out := output{Origin: origin, Size: tree.N}
	if out.Inclusion, err = inclusion(in, tree, reader); err != nil {
		return err
	}
	if out.Consistency, err = consistency(in, tree, reader); err != nil {
		return err
	}
	if out.Entries, err = entries(served, tree, reader); err != nil {
		return err
	}
	if in.SignerKey != "" {
		if out.SignerNote, err = signed(in.SignerKey); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func openCheckpoint(served files) (string, tlog.Tree, error) {
	text, err := served.read("checkpoint")
	if err != nil {
		return "", tlog.Tree{}, err
	}
	verifier, err := note.NewVerifier(served.in.VerifierKey)
	if err != nil {
		return "", tlog.Tree{}, err
	}
	opened, err := note.Open(text, note.VerifierList(verifier))
	if err != nil {
		return "", tlog.Tree{}, err
	}
	// Go's package reads trees of its own database alone; the lines after the origin are the same.
	origin, rest, _ := strings.Cut(opened.Text, "\n")
	tree, err := tlog.ParseTree([]byte("go.sum database tree\n" + rest))
	return origin, tree, err
}

func inclusion(in input, tree tlog.Tree, reader tlog.HashReader) ([][]string, error) {
	var all [][]string
	for i, index := range in.Indexes {
		proof, err := tlog.ProveRecord(tree.N, index, reader)
		if err != nil {
			return nil, err
		}
		leaves, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
		if err != nil {
			return nil, err
		}
		ours, err := hashes(in.Inclusion[i])
		if err != nil {
			return nil, err
		}
		if err := tlog.CheckRecord(ours, tree.N, tree.Hash, index, leaves[0]); err != nil {
			return nil, fmt.Errorf("inclusion of %d: %v", index, err)
		}
		all = append(all, texts(proof))
	}
	return all, nil
}

func consistency(in input, tree tlog.Tree, reader tlog.HashReader) ([][]string, error) {
	var all [][]string
	for i, size := range in.OldSizes {
		proof, err := tlog.ProveTree(tree.N, size, reader)
		if err != nil {
			return nil, err
		}
		ours, err := hashes(in.Consistency[i])
		if err != nil {
			return nil, err
		}
		old, err := tlog.ParseHash(in.OldRoots[i])
		if err != nil {
			return nil, err
		}
		if err := tlog.CheckTree(ours, tree.N, tree.Hash, size, old); err != nil {
			return nil, fmt.Errorf("consistency from %d: %v", size, err)
		}
		all = append(all, texts(proof))
	}
	return all, nil
}

// entries checks that each entry of the bundles has its hash in the tree.
func entries(served files, tree tlog.Tree, reader tlog.HashReader) (int, error) {
	count := int64(0)
	for n := int64(0); count < tree.N; n++ {
		tile := tlog.Tile{H: 8, L: 0, N: n, W: int(min(256, tree.N-count))}
		path := "tile/entries/" + strings.TrimPrefix(tile.Path(), "tile/8/0/")
		data, err := served.read(path)
		if err != nil {
			return 0, err
		}
		var indexes []int64
		var computed []tlog.Hash
		for len(data) > 0 {
			size := int(binary.BigEndian.Uint16(data))
			indexes = append(indexes, tlog.StoredHashIndex(0, count))
			computed = append(computed, tlog.RecordHash(data[2:2+size]))
			data = data[2+size:]
			count++
		}
		// At once: the reader verifies its tiles in each call.
		found, err := reader.ReadHashes(indexes)
		if err != nil {
			return 0, err
		}
		for i, hash := range found {
			if hash != computed[i] {
				return 0, fmt.Errorf("entry of index %d has another hash", indexes[i])
			}
		}
	}
	return int(count), nil
}

func signed(key string) (string, error) {
	signer, err := note.NewSigner(key)
	if err != nil {
		return "", err
	}
	text, err := note.Sign(&note.Note{Text: "signed by Go\n\nof two parts\n"}, signer)
	return string(text), err
}

func hashes(texts []string) ([]tlog.Hash, error) {
	var all []tlog.Hash
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			return nil, err
		}
		all = append(all, hash)
	}
	return all, nil
}

func texts(hashes []tlog.Hash) []string {
	all := []string{}
	for _, hash := range hashes {
		all = append(all, base64.StdEncoding.EncodeToString(hash[:]))
	}
	return all
}
