import { readdir, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { openFileBeneath } from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import type { RankState } from "@heddle/training/training-loop";
import { parseCheckpointName } from "./checkpoint-names.ts";
import { digestedBody, writeDigested } from "./digested-file.ts";

/** A rank's saved state, and its round. */
export interface FoundState {
  readonly round: number;
  readonly state: RankState;
}

/**
 * Saves a rank's state for a checkpoint: a line of JSON with names and lengths, the numbers, and a
 * SHA-256 of both. The write is atomic; it rejects with `unavailable` where it fails.
 */
export async function saveRankState(
  directory: string,
  checkpoint: string,
  rank: number,
  state: RankState,
): Promise<void> {
  const entries = Object.entries(state);
  if (entries.length === 0) return;
  const head = JSON.stringify(entries.map(([name, { length }]) => ({ name, length })));
  const body = Buffer.concat([
    Buffer.from(`${head}\n`),
    ...entries.map(([, data]) => Buffer.from(data.buffer, data.byteOffset, data.byteLength)),
  ]);
  const path = stateFile(directory, checkpoint, rank);
  try {
    await writeDigested(path, body);
  } catch (cause) {
    await forgetRankState(directory, checkpoint, rank);
    const why = cause instanceof Error ? cause.message : String(cause);
    const message = `rank ${rank} cannot keep its own state in ${path}: ${why}; is the disk full?`;
    throw new AppError("unavailable", message, { cause });
  }
}

/** Removes a rank's state for a checkpoint, and its folder where it is empty. */
export async function forgetRankState(
  directory: string,
  checkpoint: string,
  rank: number,
): Promise<void> {
  const path = stateFile(directory, checkpoint, rank);
  // A file that cannot be removed now is removed with the job's folder.
  for (const each of [path, `${path}.new`]) await rm(each, { force: true }).catch(() => undefined);
  await rmdir(dirname(path)).catch(() => undefined);
}

/** Removes all but the latest `keep` states of a rank, of any attempt. */
export async function forgetOldRankStates(
  directory: string,
  rank: number,
  keep: number,
): Promise<void> {
  const places = await checkpointPlaces(directory);
  const newestFirst = places.toSorted((a, b) => b.attempt - a.attempt || b.round - a.round);
  let found = 0;
  for (const { name } of newestFirst) {
    const files = await readdir(join(directory, name)).catch((): string[] => []);
    if (!files.includes(`rank-${rank}.state`)) continue;
    if (++found > keep) await forgetRankState(directory, name, rank);
  }
}

/** The rank's undamaged state that is nearest to a round; undefined where there is none. */
export async function findRankState(
  directory: string,
  rank: number,
  round: number,
): Promise<FoundState | undefined> {
  const places = await checkpointPlaces(directory);
  const distance = (other: number) => Math.abs(other - round);
  const nearest = places.toSorted(
    (a, b) => distance(a.round) - distance(b.round) || b.attempt - a.attempt,
  );
  for (const { name, round: at } of nearest) {
    const state = await readState(directory, stateFile("", name, rank));
    if (state) return { round: at, state };
  }
  return undefined;
}

async function checkpointPlaces(directory: string) {
  const names = await readdir(directory).catch(() => []);
  return names.flatMap((name) => {
    const place = parseCheckpointName(name);
    return place ? [{ name, ...place }] : [];
  });
}

function stateFile(directory: string, checkpoint: string, rank: number): string {
  return join(directory, checkpoint, `rank-${rank}.state`);
}

/** Undefined where it is missing or damaged: another one serves as well. */
async function readState(directory: string, path: string): Promise<RankState | undefined> {
  const file = await openFileBeneath(directory, path).catch(() => undefined);
  const bytes = await file?.readFile().finally(() => file.close());
  const body = bytes && digestedBody(bytes);
  if (!body) return undefined;
  const end = body.indexOf("\n");
  const head = JSON.parse(body.toString("utf8", 0, end)) as { name: string; length: number }[];
  let at = end + 1;
  const state: Record<string, Float32Array> = {};
  for (const { name, length } of head) {
    // Copied, since the numbers may begin at any offset in the file.
    state[name] = new Float32Array(Uint8Array.from(body.subarray(at, at + length * 4)).buffer);
    at += length * 4;
  }
  return state;
}
