import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { EventStore } from "@heddle/event-store/log/event-store";
import { RecordFile } from "@heddle/event-store/log/record-file";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { WAL_KINDS } from "@heddle/storage/wal-record";
import { median } from "../support/statistics.ts";

/** Entries a second, each append durable before the next. */
export interface AppendFigures {
  readonly batch: number;
  readonly ours: number;
  /** The same file without a tree. */
  readonly withoutTree: number;
  readonly sqlite: number;
}

interface Store {
  append(entries: readonly Uint8Array[]): Promise<unknown>;
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
    const rates = { ours: [] as number[], withoutTree: [] as number[], sqlite: [] as number[] };
    for (let round = 0; round < rounds; round++) {
      for (const [name, open] of [
        ["ours", openOurs],
        ["withoutTree", openWithoutTree],
        ["sqlite", openSqlite],
      ] as const) {
        rmSync(folder, { recursive: true, force: true });
        mkdirSync(folder, { recursive: true });
        rates[name].push(await appendRate(await open(folder), batch, seconds));
      }
    }
    const { ours, withoutTree, sqlite } = rates;
    figures.push({
      batch,
      ours: median(ours),
      withoutTree: median(withoutTree),
      sqlite: median(sqlite),
    });
  }
  rmSync(folder, { recursive: true, force: true });
  return figures;
}

async function appendRate(store: Store, batch: number, seconds: number): Promise<number> {
  const entries = Array.from({ length: batch }, (_, at) => Buffer.alloc(entryBytes, at));
  for (let warmup = 0; warmup < 20; warmup++) await store.append(entries);
  const began = performance.now();
  let appends = 0;
  while (performance.now() - began < seconds * 1_000) {
    await store.append(entries);
    appends++;
  }
  const rate = (appends * batch) / ((performance.now() - began) / 1_000);
  await store.close();
  return rate;
}

async function openOurs(directory: string): Promise<Store> {
  const { log } = await EventStore.open({ files: nodeStorageFiles, directory, origin });
  return log;
}

async function openWithoutTree(directory: string): Promise<Store> {
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
