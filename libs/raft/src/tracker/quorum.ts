/** The ids of the voters of one majority configuration; an empty set agrees with everything. */
export type MajorityConfig = ReadonlySet<number>;

/** The result of an election by the votes so far: still open, certainly lost, or won. */
export type VoteResult = "pending" | "lost" | "won";

/** The last index that a voter has acknowledged, or undefined if it has not reported. */
type AckedIndex = (voterId: number) => number | undefined;

/**
 * The voters of a configuration. Outside a membership change only `incoming` has members; in joint
 * consensus (Raft thesis, section 4.3) every decision needs a majority of both halves.
 */
export interface JointConfig {
  readonly incoming: MajorityConfig;
  /** Empty unless the configuration is joint. */
  readonly outgoing: MajorityConfig;
}

/** The largest index that a majority has acknowledged; Infinity for the empty configuration. */
export function majorityCommittedIndex(config: MajorityConfig, acked: AckedIndex): number {
  if (config.size === 0) return Number.POSITIVE_INFINITY;
  const indexes: number[] = [];
  for (const id of config) insertDescending(indexes, acked(id) ?? 0);
  // In descending order, floor(n/2)+1 voters have acknowledged the value at position floor(n/2).
  return indexes[indexes.length >> 1] as number;
}

/** Runs for each acknowledgement, on a handful of voters, where a general sort is slower. */
function insertDescending(indexes: number[], index: number): void {
  let position = indexes.length;
  for (; position > 0 && (indexes[position - 1] as number) < index; position--) {
    indexes[position] = indexes[position - 1] as number;
  }
  indexes[position] = index;
}

/**
 * The largest index that a majority of each half has acknowledged; Infinity where both are empty.
 */
export function committedIndex(config: JointConfig, acked: AckedIndex): number {
  return Math.min(
    majorityCommittedIndex(config.incoming, acked),
    majorityCommittedIndex(config.outgoing, acked),
  );
}

/** The result of an election in one majority; the empty configuration has won. */
export function majorityVoteResult(
  config: MajorityConfig,
  votes: ReadonlyMap<number, boolean>,
): VoteResult {
  if (config.size === 0) return "won";
  let granted = 0;
  let missing = 0;
  for (const id of config) {
    const vote = votes.get(id);
    if (vote === undefined) missing++;
    else if (vote) granted++;
  }
  const needed = (config.size >> 1) + 1;
  if (granted >= needed) return "won";
  return granted + missing >= needed ? "pending" : "lost";
}

/** The result of an election that needs both halves; lost if one half is lost. */
export function voteResult(config: JointConfig, votes: ReadonlyMap<number, boolean>): VoteResult {
  const incoming = majorityVoteResult(config.incoming, votes);
  const outgoing = majorityVoteResult(config.outgoing, votes);
  if (incoming === outgoing) return incoming;
  return incoming === "lost" || outgoing === "lost" ? "lost" : "pending";
}

/** Every voter of either half, in ascending order. */
export function voterIds(config: JointConfig): number[] {
  return sortedIds(new Set([...config.incoming, ...config.outgoing]));
}

/** The members of a set of ids in ascending order. */
export function sortedIds(ids: Iterable<number>): number[] {
  return [...ids].sort((a, b) => a - b);
}
