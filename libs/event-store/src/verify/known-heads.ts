import { EMPTY_ROOT, sameHash } from "../merkle/hash.ts";
import type { TreeHead } from "../merkle/verify-proof.ts";
import { type LogTrust, verifyCheckpoint } from "../notes/checkpoint.ts";
import type { SignedNote } from "../notes/signed-note.ts";
import type { FaultKind, FaultList } from "./faults.ts";

interface KnownHead extends TreeHead {
  /** How messages name it. */
  readonly name: string;
  isCompared: boolean;
}

/** A signed tree that the entries do not have; up to `from` all was as signed. */
interface Mismatch {
  readonly name: string;
  readonly from: number;
  readonly size: number;
}

/** Signed trees that a verifier compares with the entries as it passes their sizes. */
export class KnownHeads {
  readonly #faults: FaultList;
  readonly #trust: LogTrust;
  readonly #bySize = new Map<number, KnownHead[]>();
  readonly #mismatches: Mismatch[] = [];
  /** The largest size at which all was as signed. */
  #agreed: number;

  constructor(faults: FaultList, trust: LogTrust, first = 0) {
    this.#faults = faults;
    this.#trust = trust;
    this.#agreed = first;
  }

  /** Takes a checkpoint whose signatures are right. Another one of its size must have its root. */
  add(note: SignedNote, name: string): TreeHead | undefined {
    const head = this.#faults.try("malformed", () => verifyCheckpoint(note, this.#trust));
    if (!head) return undefined;
    const { size, root } = head;
    const same = this.#bySize.get(size) ?? [];
    const other = same.find((known) => !sameHash(known.root, root));
    if (other) {
      const message = `${name} and ${other.name} sign different histories of ${size} entries`;
      this.#faults.add("fork", message);
    }
    const isCompared = size === 0 && sameHash(root, EMPTY_ROOT);
    this.#bySize.set(size, [...same, { size, root, name, isCompared }]);
    return head;
  }

  has(size: number): boolean {
    return this.#bySize.has(size);
  }

  /** A proof has shown that this tree is a prefix of the last one. */
  markProved({ size, root }: TreeHead): void {
    for (const head of this.#bySize.get(size) ?? []) {
      if (sameHash(head.root, root)) head.isCompared = true;
    }
  }

  /** The tree of that size as the entries give it. True where all that are signed are the same. */
  compare({ size, root }: TreeHead): boolean {
    let isSame = true;
    for (const head of this.#bySize.get(size) ?? []) {
      head.isCompared = true;
      if (sameHash(head.root, root)) continue;
      this.#mismatches.push({ name: head.name, from: this.#agreed, size });
      isSame = false;
    }
    if (isSame) this.#agreed = size;
    return isSame;
  }

  /** Reports what differs. Entries that the last checkpoint signs are right, and another one is not. */
  finish(isAsSigned: boolean, explain: (size: number) => [kind: FaultKind, why: string]): void {
    const mismatches = isAsSigned ? this.#mismatches : this.#mismatches.slice(0, 1);
    for (const { name, from, size } of mismatches) {
      if (isAsSigned) {
        this.#faults.add(
          "fork",
          `${name}, of ${size} entries, is of another history than the last one`,
        );
      } else {
        const message = `entries from ${from} to ${size - 1} are not those that ${name} signs`;
        this.#faults.add("changed", message);
      }
    }
    for (const heads of this.#bySize.values()) {
      for (const { size, name, isCompared } of heads) {
        if (isCompared) continue;
        const [kind, why] = explain(size);
        this.#faults.add(kind, `${name}, of ${size} entries, ${why}`);
      }
    }
  }
}
