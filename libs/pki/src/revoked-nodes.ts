import { type NodeClaim, writeClaim } from "./node-name.ts";

/** The number that a cluster keeps; one more replaces the earliest. */
const MAX_REVOKED = 10_000;

/** A node, as role/name, whose certificates of validity up to then are revoked. */
export type Revocation = readonly [node: string, atMs: number];

/** The nodes with revoked certificates that a node knows of, for the calls it serves itself. */
export class RevokedNodes {
  readonly #atMs: Map<string, number>;

  constructor(known: Iterable<Revocation> = []) {
    this.#atMs = new Map(known);
  }

  /** Returns whether any of them is news. */
  add(revocations: readonly Revocation[]): boolean {
    const news = revocations.filter(([node, atMs]) => atMs > (this.#atMs.get(node) ?? 0));
    for (const [node, atMs] of news) this.#atMs.set(node, atMs);
    const over = this.#atMs.size - MAX_REVOKED;
    const byAge = over > 0 ? [...this.#atMs].sort(([, one], [, other]) => one - other) : [];
    for (const [node] of byAge.slice(0, Math.max(0, over))) this.#atMs.delete(node);
    return news.length > 0;
  }

  /** Whether a certificate of the node was revoked, by the begin of its validity. */
  has(node: NodeClaim, validFromMs: number): boolean {
    const atMs = this.#atMs.get(writeClaim(node));
    return atMs !== undefined && validFromMs <= atMs;
  }

  get all(): readonly Revocation[] {
    return [...this.#atMs];
  }
}
