/** The content of a checkpoint's name. */
interface CheckpointPlace {
  readonly attempt: number;
  /** Rounds that it contains. */
  readonly round: number;
  /** Shards that wrote it. */
  readonly pieces: number;
}

/** For example `a2-r000120-s4`: attempt 2, after round 120, from 4 shards. */
export function checkpointName({ attempt, round, pieces }: CheckpointPlace): string {
  return `a${attempt}-r${String(round).padStart(6, "0")}-s${pieces}`;
}

/**
 * The named checkpoint and those before it, newest first; a later attempt's are newer. Where the
 * named one is missing, as after a restore from a backup, newer ones follow, newest first. Names of
 * another form are skipped; if the named one has another form, all count as before it.
 */
export function checkpointChoices(
  names: readonly string[],
  latest: string,
): (CheckpointPlace & { readonly name: string })[] {
  const known = [...new Set([...names, latest])].flatMap((name) => {
    const place = parseCheckpointName(name);
    return place ? [{ name, ...place }] : [];
  });
  const newestFirst = known.toSorted((a, b) => b.attempt - a.attempt || b.round - a.round);
  const at = Math.max(
    0,
    newestFirst.findIndex(({ name }) => name === latest),
  );
  const newer = names.includes(latest) ? [] : newestFirst.slice(0, at);
  return [...newestFirst.slice(at), ...newer];
}

/** Undefined for a name of another form. */
export function parseCheckpointName(name: string): CheckpointPlace | undefined {
  const match = /^a(\d+)-r(\d+)-s(\d+)$/.exec(name);
  if (!match) return undefined;
  const [attempt = 0, round = 0, pieces = 0] = match.slice(1).map(Number);
  return { attempt, round, pieces };
}
