import { toAppError } from "@heddle/base/errors";
import { TreeFrontier } from "../merkle/frontier.ts";
import { leafHash, sameHash } from "../merkle/hash.ts";
import { subtreesOf } from "../merkle/tree-shape.ts";
import { isConsistent, type TreeHead } from "../merkle/verify-proof.ts";
import { type LogTrust, verifyCheckpoint } from "../notes/checkpoint.ts";
import { parseNote, type SignedNote } from "../notes/signed-note.ts";
import { type ReadHead, type ReadLine, readExportLine } from "./export-reader.ts";
import { FaultList, type LogFault } from "./faults.ts";
import { KnownHeads } from "./known-heads.ts";

/** What an export shows, where it has no fault. */
export interface ExportReport {
  /** The entries: from `first` to before `end`. */
  readonly first: number;
  readonly end: number;
  /** The size of the tree that its checkpoint signs. */
  readonly size: number;
  /** Earlier checkpoints in it that are consistent with that one. */
  readonly earlier: number;
  readonly faults: readonly LogFault[];
}

/**
 * Verifies an export without its log: signatures, entries, and that all checkpoints, also those that
 * the verifier knew before, are of one history. The lines are read once, and none is kept.
 */
export async function verifyExport(
  lines: AsyncIterable<string>,
  trust: LogTrust,
  known: readonly SignedNote[] = [],
): Promise<ExportReport> {
  const faults = new FaultList();
  const check = new ExportCheck(trust, faults);
  let number = 0;
  try {
    for await (const line of lines) {
      number++;
      const read = faults.try("malformed", () => readExportLine(line, number));
      if (!read || !check.take(read, known)) break;
    }
  } catch (error) {
    const { code, message } = toAppError(error);
    if (code !== "invalid_value") throw error;
    faults.add("malformed", message);
  }
  check.finish();
  return { ...check.shown, faults: faults.faults };
}

class ExportCheck {
  readonly #trust: LogTrust;
  readonly #faults: FaultList;
  #known: KnownHeads;
  #head: (ReadHead & { readonly tree: TreeHead }) | undefined;
  #frontier = new TreeFrontier();
  #earlier = 0;

  constructor(trust: LogTrust, faults: FaultList) {
    this.#trust = trust;
    this.#faults = faults;
    this.#known = new KnownHeads(faults, trust);
  }

  get shown() {
    const { first = 0, end = 0, tree } = this.#head ?? {};
    return { first, end, size: tree?.size ?? 0, earlier: this.#earlier };
  }

  /** False ends the check. */
  take(line: ReadLine, known: readonly SignedNote[]): boolean {
    if (line.kind === "head") return this.#takeHead(line.head, known);
    if (!this.#head) return this.#stop("malformed", "the first line is no head of an export");
    if (line.kind === "earlier")
      return this.#takeEarlier(line.checkpoint, line.proof, this.#head.tree);
    return this.#takeEntry(line.sequence, line.data, this.#head);
  }

  finish(): void {
    const head = this.#head;
    if (!head) {
      if (this.#faults.count === 0) this.#faults.add("truncated", "the export is empty");
      return;
    }
    if (this.#faults.count > 0) return;
    const { size } = this.#frontier;
    if (size < head.end) {
      this.#faults.add("truncated", `the export ends with entry ${size - 1}, not ${head.end - 1}`);
      return;
    }
    for (const [at, { height }] of subtreesOf({ begin: head.end, end: head.tree.size }).entries()) {
      this.#frontier.appendSubtree(height, head.right[at] as Uint8Array);
    }
    const root = this.#frontier.root();
    this.#known.compare({ size: this.#frontier.size, root });
    this.#known.finish(sameHash(root, head.tree.root), () => [
      "uncovered",
      "cannot be compared: neither it nor its entries are in the export. Export from it on",
    ]);
  }

  /** Witnesses of the export's own checkpoint have seen that earlier ones lead to it. */
  get #older(): LogTrust {
    return { ...this.#trust, quorum: 0 };
  }

  #takeHead(head: ReadHead, known: readonly SignedNote[]): boolean {
    if (this.#head) return this.#stop("malformed", "the export has two heads");
    const note = this.#faults.try("malformed", () => parseNote(head.checkpoint));
    const tree = note && this.#faults.try("malformed", () => verifyCheckpoint(note, this.#trust));
    if (!note || !tree) return false;
    const { first, end, left, right } = head;
    const beside = subtreesOf({ begin: end, end: tree.size }).length;
    const isRange = first < end && end <= tree.size && right.length === beside;
    const frontier = isRange && this.#faults.try("malformed", () => new TreeFrontier(first, left));
    if (!frontier) {
      return this.#stop("malformed", `its head is not of a range in ${tree.size} entries`);
    }
    this.#head = { ...head, tree };
    this.#known = new KnownHeads(this.#faults, this.#older, first);
    this.#known.add(note, "the checkpoint of the export");
    this.#frontier = frontier;
    for (const [at, each] of known.entries()) this.#known.add(each, `given checkpoint ${at + 1}`);
    this.#compare();
    return true;
  }

  #takeEarlier(checkpoint: string, proof: readonly Uint8Array[], tree: TreeHead): boolean {
    const note = this.#faults.try("malformed", () => parseNote(checkpoint));
    const old = note && this.#faults.try("malformed", () => verifyCheckpoint(note, this.#older));
    if (!note || !old) return false;
    if (!isConsistent(old, tree, proof)) {
      const message = `the checkpoints of ${old.size} and of ${tree.size} entries are not of one history`;
      return this.#stop("fork", message);
    }
    this.#known.add(note, `the checkpoint of ${old.size} entries`);
    this.#known.markProved(old);
    this.#earlier++;
    return true;
  }

  #takeEntry(sequence: number, data: Uint8Array, { end }: ReadHead): boolean {
    const expected = this.#frontier.size;
    if (sequence !== expected) {
      const found = sequence < expected ? "follows again or late" : "follows instead";
      return this.#stop("order", `entry ${expected} is missing: ${sequence} ${found}`);
    }
    if (sequence >= end) return this.#stop("order", `entry ${sequence} follows the end, ${end}`);
    this.#frontier.append(leafHash(data));
    this.#compare();
    return true;
  }

  #compare(): void {
    const { size } = this.#frontier;
    if (this.#known.has(size)) this.#known.compare({ size, root: this.#frontier.root() });
  }

  #stop(kind: LogFault["kind"], message: string): false {
    this.#faults.add(kind, message);
    return false;
  }
}
