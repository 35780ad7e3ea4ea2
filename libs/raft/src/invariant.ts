/**
 * Throws when an invariant of this package, or one that its driver must keep, is broken. That is a
 * bug and never an operating error, so the node must stop before it damages the log.
 */
export function invariant(condition: boolean, describe: () => string): asserts condition {
  if (!condition) throw new Error(`raft invariant broken: ${describe()}`);
}
