import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { EventStore } from "@heddle/event-store/log/event-store";
import { HashLevels } from "@heddle/event-store/log/hash-levels";
import { RecordFile } from "@heddle/event-store/log/record-file";
import { TreeWriter } from "@heddle/event-store/log/tree-writer";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { WAL_KINDS } from "@heddle/storage/wal-record";
import { median } from "../support/statistics.ts";

/** Medians of the rounds; each append is durable before the next. */
interface StoreFigures {
  readonly perSecond: number;
  /** The processor time of all threads of the process, for an entry. */
  readonly cpuMicros: number;
}

export interface AppendFigures {
  /** Entries an append. */
  readonly batch: number;
  /** The ratio of entries a second with the tree to those without, in rounds that follow each other. */
  readonly treeRatio: number;
  /** The same of entries in a second of CPU. */
  readonly treeCpuRatio: number;
  readonly ours: StoreFigures;
  /** The same store, which computes and keeps no hash. */
  readonly withoutTree: StoreFigures;
  /** The file of records alone: no queue, no segments, no entries in memory for readers. */
  readonly fileAlone: StoreFigures;
  readonly sqlite: StoreFigures;
}

interface Store {
  append(entries: readonly Uint8Array[]): Promise<unknown>;
  /** Does what appends have left to do; its time counts too. */
  finish?(): Promise<unknown>;
  close(): Promise<void>;
}

const entryBytes = 300;
const origin = "bench.example";

export async function measureAppends(
  folder: string,
  batches: readonly number[],
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number },
): Promise<AppendFigures[]> {
  const figures: AppendFigures[] = [];
  for (const batch of batches) {
    const runs: Record<StoreName, StoreFigures[]> = {
      ours: [],
      withoutTree: [],
      fileAlone: [],
      sqlite: [],
    };
    for (let round = 0; round < rounds; round++) {
      // In both orders: what one leaves to the disk to remove would always slow the same next one.
      for (const [name, open] of round % 2 === 0 ? STORES : STORES.toReversed()) {
        rmSync(folder, { recursive: true, force: true });
        mkdirSync(folder, { recursive: true });
        runs[name].push(await measureStore(await open(folder), batch, seconds));
      }
    }
    figures.push({
      batch,
      treeRatio: medianRatio(runs.ours, runs.withoutTree, "perSecond"),
      treeCpuRatio: medianRatio(runs.withoutTree, runs.ours, "cpuMicros"),
      ours: medians(runs.ours),
      withoutTree: medians(runs.withoutTree),
      fileAlone: medians(runs.fileAlone),
      sqlite: medians(runs.sqlite),
    });
  }
  rmSync(folder, { recursive: true, force: true });
  return figures;
}

function medianRatio(
  ones: readonly StoreFigures[],
  others: readonly StoreFigures[],
  figure: keyof StoreFigures,
): number {
  return median(ones.map((one, round) => one[figure] / (others[round] as StoreFigures)[figure]));
}

function medians(runs: readonly StoreFigures[]): StoreFigures {
  return {
    perSecond: median(runs.map(({ perSecond }) => perSecond)),
    cpuMicros: median(runs.map(({ cpuMicros }) => cpuMicros)),
  };
}

async function measureStore(store: Store, batch: number, seconds: number): Promise<StoreFigures> {
  const entries = Array.from({ length: batch }, (_, at) => Buffer.alloc(entryBytes, at));
  for (let warmup = 0; warmup < 20; warmup++) await store.append(entries);
  const began = performance.now();
  const cpu = process.cpuUsage();
  let appends = 0;
  while (performance.now() - began < seconds * 1_000) {
    await store.append(entries);
    appends++;
  }
  await store.finish?.();
  const count = appends * batch;
  const perSecond = count / ((performance.now() - began) / 1_000);
  const { user, system } = process.cpuUsage(cpu);
  await store.close();
  return { perSecond, cpuMicros: (user + system) / count };
}

async function openOurs(directory: string): Promise<Store> {
  const { log } = await EventStore.open({ files: nodeStorageFiles, directory, origin });
  return {
    append: (entries) => log.append(entries),
    // The tree may lag behind the entries on the disk.
    finish: () => log.tree().root(),
    close: () => log.close(),
  };
}

const { add, within, reach } = TreeWriter.prototype;
const { seal } = HashLevels.prototype;

async function openWithoutTree(directory: string): Promise<Store> {
  const nothing = async () => undefined;
  Object.assign(TreeWriter.prototype, { add: () => undefined, within: nothing, reach: nothing });
  Object.assign(HashLevels.prototype, { seal: nothing });
  const { append, close } = await openOurs(directory);
  return {
    append,
    close: async () => {
      await close();
      Object.assign(TreeWriter.prototype, { add, within, reach });
      Object.assign(HashLevels.prototype, { seal });
    },
  };
}

async function openFileAlone(directory: string): Promise<Store> {
  const head = { payload: Buffer.from("{}"), index: 0 };
  const options = { chain: { crc: 0, group: 0 }, growBytes: 2 ** 20 };
  const file = await RecordFile.create(nodeStorageFiles, join(directory, "log"), head, options);
  let next = 0;
  return {
    append: (entries) => {
      const records = entries.map((payload) => {
        return { kind: WAL_KINDS.entry, term: 0, index: next++, payload };
      });
      return file.append(records);
    },
    close: () => file.close(),
  };
}

/** Durable at each commit, as ours. */
async function openSqlite(directory: string): Promise<Store> {
  const database = new DatabaseSync(join(directory, "events.db"));
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  database.exec("CREATE TABLE events (sequence INTEGER PRIMARY KEY, entry BLOB NOT NULL)");
  const insert = database.prepare("INSERT INTO events (entry) VALUES (?)");
  return {
    append: async (entries) => {
      database.exec("BEGIN");
      for (const entry of entries) insert.run(entry);
      database.exec("COMMIT");
    },
    close: async () => database.close(),
  };
}

type StoreName = "ours" | "withoutTree" | "fileAlone" | "sqlite";

const STORES: readonly (readonly [StoreName, (folder: string) => Promise<Store>])[] = [
  ["ours", openOurs],
  ["withoutTree", openWithoutTree],
  ["fileAlone", openFileAlone],
  ["sqlite", openSqlite],
];
