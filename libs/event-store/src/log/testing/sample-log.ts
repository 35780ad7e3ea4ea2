import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nodeStorageFiles, type StorageFiles } from "@heddle/storage/storage-files";
import { TreeFrontier } from "../../merkle/frontier.ts";
import { leafHash } from "../../merkle/hash.ts";
import { noteSigner, parseVerifierKey } from "../../notes/note-key.ts";
import { EventStore } from "../event-store.ts";

export const ORIGIN = "log.example/events";
export const signer = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
export const trust = { origin: ORIGIN, keys: [parseVerifierKey(signer.verifierKey)] };

export const entryAt = (at: number) => Buffer.from(`event ${at} ${"x".repeat(at % 50)}`);
export const entries = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, at) => entryAt(from + at));
export const texts = (from: number, to: number): string[] => entries(from, to).map(String);

/** The root of the first entries, by adding one after the other. */
export function naiveRoot(size: number): Uint8Array {
  const frontier = new TreeFrontier();
  for (const entry of entries(0, size)) frontier.append(leafHash(entry));
  return frontier.root();
}

/** For tests: directories of logs, each new; `close` removes them. */
export class LogDirectories {
  readonly #root = mkdtempSync(join(tmpdir(), "heddle-events-"));
  #count = 0;

  next(): string {
    return join(this.#root, String(this.#count++));
  }

  close(): void {
    rmSync(this.#root, { recursive: true });
  }
}

/** For tests: a log of small segments. */
export function openLog(directory: string, files: StorageFiles = nodeStorageFiles) {
  const options = { files, directory, origin: ORIGIN, segmentEntries: 256, growBytes: 4_096 };
  return EventStore.open(options);
}

/** Fails where a page does not begin after the one before. */
export async function readAll(log: EventStore, from = log.first): Promise<string[]> {
  const found: string[] = [];
  for await (const page of log.stream(from)) {
    if (page.first !== from + found.length) {
      throw new Error(`a page begins at ${page.first}, not ${from + found.length}`);
    }
    found.push(...page.entries.map((entry) => Buffer.from(entry).toString()));
  }
  return found;
}
