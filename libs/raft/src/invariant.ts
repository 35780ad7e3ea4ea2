/**
 * Throws when a promise that this package makes to itself, or that its driver makes to it, is
 * broken: a bug that must stop the node before it harms the log, never an operating error.
 */
export function invariant(condition: boolean, describe: () => string): asserts condition {
  if (!condition) throw new Error(`raft invariant broken: ${describe()}`);
}
