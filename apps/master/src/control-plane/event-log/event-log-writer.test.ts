import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkpointText } from "@heddle/event-store/notes/checkpoint";
import { noteSigner } from "@heddle/event-store/notes/note-key";
import { formatNote, signNote } from "@heddle/event-store/notes/signed-note";
import { createLogger } from "@heddle/observability/logger";
import { expect, onTestFinished, test } from "vitest";
import { EventCatchUp } from "./event-catch-up.ts";
import { EventLogWriter } from "./event-log-writer.ts";

/** The log of a master that has installed a snapshot with five events, and a checkpoint of them. */
async function behind(): Promise<{ writer: EventLogWriter; faults: unknown[] }> {
  const directory = mkdtempSync(join(tmpdir(), "heddle-events-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const faults: unknown[] = [];
  const writer = await EventLogWriter.open(directory, "c1", (error) => faults.push(error));
  const { origin } = writer;
  const signer = noteSigner(origin, generateKeyPairSync("ed25519").privateKey);
  const text = checkpointText({ origin, size: 5, root: new Uint8Array(32), extensions: [] });
  const cluster = new Map([["checkpoint", formatNote(signNote(text, [signer]))]]);
  const control = { derived: [], eventCount: 5, logTimeMs: 0, index: 9, state: { cluster } };
  writer.restored(control as unknown as Parameters<EventLogWriter["restored"]>[0]);
  expect(writer.missing).toBe(5);
  return { writer, faults };
}

test("event log: closes although events of the last checkpoint are missing", async () => {
  const { writer, faults } = await behind();
  await writer.close();
  expect(faults).toEqual([]);
});

test("event log: only a master that is alone refuses to start without events", async () => {
  const { writer } = await behind();
  const check = (isAlone: boolean) => {
    const group = { isAlone: () => isAlone };
    const log = createLogger({ service: "test", level: "silent" });
    const parts = { control: { group }, events: writer, peers: {}, log } as unknown;
    new EventCatchUp(parts as ConstructorParameters<typeof EventCatchUp>[0]).check();
  };
  expect(() => check(true)).toThrow("5 events are missing in the event log of this master");
  check(false);
  await writer.close();
});
