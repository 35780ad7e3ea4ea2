import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dedicatedStorageFiles } from "@heddle/storage/storage-files";
import { WAL_KINDS, type WalRecord, walRecordBytes } from "@heddle/storage/wal-record";
import { WriteAheadLog } from "@heddle/storage/write-ahead-log";
import { median } from "../support/statistics.ts";

/** Appends per second of our log and of the raw C program, for groups of this many entries. */
export interface WalFigures {
  readonly batch: number;
  readonly appendsPerSecond: number;
  readonly ceilingPerSecond: number | undefined;
  /** The median time of one durable write of the raw program. */
  readonly ceilingP50Micros: number | undefined;
}

const entryBytes = 256;
const fileBytes = 64 * 2 ** 20;
/** A master's default. */
const snapshotEntries = 10_000;
const warmupBatch = 1_000;
/** An entry's size in a record of several, without the head of that record. */
const entryInRunBytes = 16 + entryBytes;
/** The content of two segments and a half. */
const warmupEntries = Math.ceil((2.5 * fileBytes) / entryInRunBytes);

/** Measures ours and the ceiling alternately; without a C compiler there is no ceiling. */
export async function measureWal(
  folder: string,
  { rounds, seconds }: { rounds: number; seconds: number },
): Promise<WalFigures[]> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const ceiling = compileCeiling(folder);
  if (!ceiling) console.log("no C compiler (cc): the ceiling of the log is not measured");
  const figures: WalFigures[] = [];
  for (const batch of [1, 100]) {
    const ours: number[] = [];
    const raw: { perSecond: number; p50Micros: number }[] = [];
    for (let round = 0; round < rounds; round++) {
      if (ceiling) raw.push(runCeiling(ceiling, folder, batch, seconds));
      ours.push(await appendRate(join(folder, `log-${batch}-${round}`), batch, seconds));
    }
    figures.push({
      batch,
      appendsPerSecond: median(ours),
      ceilingPerSecond: raw.length > 0 ? median(raw.map((run) => run.perSecond)) : undefined,
      ceilingP50Micros: raw.length > 0 ? median(raw.map((run) => run.p50Micros)) : undefined,
    });
  }
  rmSync(folder, { recursive: true, force: true });
  return figures;
}

async function appendRate(directory: string, batch: number, seconds: number): Promise<number> {
  const { log } = await WriteAheadLog.open({
    // As in a master's Raft thread.
    files: dedicatedStorageFiles(() => performance.now()),
    directory,
    owner: { cluster: "bench", node: "1" },
  });
  const payload = new Uint8Array(entryBytes).fill(7);
  let index = 0;
  let released = 0;
  const records: WalRecord[] = [];
  const append = async (count: number): Promise<void> => {
    records.length = 0;
    for (let i = 0; i < count; i++) {
      records.push({ kind: WAL_KINDS.entry, term: 1, index: ++index, payload });
    }
    await log.append(records);
    if (index - released < snapshotEntries) return;
    // As after a snapshot: the log before it may be released.
    await log.release(released);
    released = index;
  };
  // Until no segment is new, as in a log in steady use.
  while (index < warmupEntries) await append(warmupBatch);
  for (let i = 0; i < 500; i++) await append(batch);
  const startMs = performance.now();
  let appends = 0;
  while (performance.now() - startMs < seconds * 1000) {
    await append(batch);
    appends++;
  }
  const rate = appends / ((performance.now() - startMs) / 1000);
  await log.close();
  rmSync(directory, { recursive: true });
  return rate;
}

function compileCeiling(folder: string): string | undefined {
  const source = fileURLToPath(new URL("./wal-ceiling.c", import.meta.url));
  const program = join(folder, "wal-ceiling");
  return spawnSync("cc", ["-O2", "-o", program, source]).status === 0 ? program : undefined;
}

/** The better of the two ways to make a write durable. */
function runCeiling(program: string, folder: string, batch: number, seconds: number) {
  // As many bytes as ours writes.
  const size = String(walRecordBytes(batch === 1 ? entryBytes : batch * entryInRunBytes));
  const runs = ["fdatasync", "odsync"].map((way) => {
    const file = join(folder, "ceiling.dat");
    const args = [file, String(fileBytes), size, String(seconds), way];
    const { stdout, status } = spawnSync(program, args, { encoding: "utf8" });
    rmSync(file, { force: true });
    if (status !== 0) throw new Error(`wal-ceiling ended with status ${status}`);
    const [perSecond = 0, p50Micros = 0] = stdout.trim().split(" ").map(Number);
    return { perSecond, p50Micros };
  });
  return runs.reduce((best, run) => (run.perSecond > best.perSecond ? run : best));
}
