import { type NodeClaim, writeClaim } from "./node-name.ts";

/** As many as a cluster keeps; one more replaces the earliest. */
const MAX_REVOKED = 10_000;

/** The nodes with revoked certificates that a node knows of, for the calls it serves itself. */
export class RevokedNodes {
  readonly #atMs = new Map<string, number>();

  /** `node`: role/name. Ends its certificates whose validity began no later than `atMs`. */
  add(node: string, atMs: number): void {
    this.#atMs.set(node, Math.max(atMs, this.#atMs.get(node) ?? 0));
    if (this.#atMs.size <= MAX_REVOKED) return;
    const [[earliest]] = [...this.#atMs].sort(([, one], [, other]) => one - other) as [
      [string, number],
    ];
    this.#atMs.delete(earliest);
  }

  /** Whether a certificate of the node was revoked, by the begin of its validity. */
  has(node: NodeClaim, validFromMs: number): boolean {
    const atMs = this.#atMs.get(writeClaim(node));
    return atMs !== undefined && validFromMs <= atMs;
  }
}
