/** Log positions at which hashes are kept. */
const MAX_POINTS = 16;

/**
 * Detects a master whose state has diverged. At fixed intervals each master reports its state hash
 * through the log; a member that disagrees with a majority is wrong.
 */
export class HashCheck {
  /** Keyed by number of commands: the hash that each member reported. */
  readonly #points = new Map<number, Map<number, string>>();

  /**
   * Records a report. Returns the members whose state differs from the majority's at that point.
   */
  report(
    point: { readonly node: number; readonly commands: number; readonly hash: string },
    voters: number,
  ): readonly number[] {
    const hashes = this.#points.get(point.commands) ?? new Map<number, string>();
    hashes.set(point.node, point.hash);
    this.#points.set(point.commands, hashes);
    const [oldest] = this.#points.keys();
    if (this.#points.size > MAX_POINTS && oldest !== undefined) this.#points.delete(oldest);
    const agreed = [...hashes.values()].find(
      (hash) => [...hashes.values()].filter((other) => other === hash).length > voters / 2,
    );
    if (agreed === undefined) return [];
    return [...hashes].filter(([, hash]) => hash !== agreed).map(([node]) => node);
  }
}
