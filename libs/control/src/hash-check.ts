/** Points at which hashes are remembered. */
const MAX_POINTS = 16;

/**
 * Finds a master whose state has come apart from the others': after every so many commands each
 * reports the hash of its state through the log, and who disagrees with a majority is wrong.
 */
export class HashCheck {
  /** By number of commands: the hash that each member reported. */
  readonly #points = new Map<number, Map<number, string>>();

  /**
   * Takes in a report. Returns the members whose state differs from that of a majority of the
   * voters at that point, as far as known.
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
